"""The limit of real brokers while one of them is offline, and while it catches up."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.cluster.broker_outage import ControlledOutage
from jobs.cluster.connect import connect
from jobs.cluster.topics import Topics
from jobs.config import load, load_workload
from jobs.testbed.launcher import start
from metrics.tables.store import TableStore
from metrics.trial.trial import ALL_BROKERS, CATCHING_UP, offline_state
from search.model import Verdict
from tests.support.kafka_fixtures import REFUSED_SOCKETS
from tests.support.processes import becomes
from tests.support.runs import limits_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("refused_sockets"),
    pytest.mark.filterwarnings(REFUSED_SOCKETS),
]

OFFLINE = offline_state(1)

# The stated 60 ms with one handler: a limit near 21 producers of three brokers, 14 of two.
PLANTED = (
    'cluster.testbed.properties={num.io.threads: "1"}',
    "workload.message_bytes=[1000]",
    "cluster.warm_up_max_s=20",
    "workload.topic.replication_factor=2",
    "workload.trial.warmup_s=1",
    "workload.trial.measure_s=6",
    "goal.indicators.achieved_min=0.95",  # a few batches are a hundredth of a short window
    "goal.search.load_start_max=24",
    "goal.search.resolution=0.12",
    "goal.search.brokers_offline=1",
    "goal.search.steady_s=0",
)


def test_topics_are_created_led_and_replicated_around_an_offline_broker() -> None:
    traffic = load_workload("demo").pattern(1000)
    with (
        start("calibrated", brokers=2, name="outage") as testbed,
        connect(testbed.bootstrap_servers) as admin,
    ):
        topics = Topics(admin, "outage")
        broker_outage = ControlledOutage(testbed, admin)
        topics.validate(traffic)  # the client knows the controller after this
        admin.client._controller_id = 2
        cluster = admin.client._manager.cluster
        known = dict(cluster._brokers)
        topics.offline = broker_outage.begin(1)
        assert topics.offline == {2}
        cluster._brokers = known  # before its next check, whose time varies
        admin.client._manager.reset_backoff(2)
        made = topics.create(traffic)
        assert set(made.leaders) == {1} and set(made.replicas[0]) == {1, 2}
        assert topics.check(made).ok
        assert not topics.is_in_sync(made)
        broker_outage.end()
        assert becomes(lambda: topics.is_in_sync(made), 30.0)
        assert topics.check(made).ok, "the other brokers lead as before"
        topics.delete(made.names)


def test_the_other_brokers_are_searched_and_the_broker_catches_up_under_load(
    tmp_path: Path, spark: SparkSession
) -> None:
    config = load("calibrated", "calibrated", "default", PLANTED)
    points = limits_of(config, tmp_path, "offline")
    for point in points:
        log.warning("%s: %s producers, %s", point["state"], point["np_sustained"], point["notes"])
    assert [point["state"] for point in points] == [ALL_BROKERS, OFFLINE, CATCHING_UP]
    whole, rest, catching = points
    # The two other brokers lead half as many partitions more, so the limit is at two thirds.
    assert rest["np_sustained"] == pytest.approx(whole["np_sustained"] * 2 / 3, rel=0.25)
    assert rest["np_overloaded"] < whole["np_overloaded"]
    assert rest["mb_per_s_per_broker"] == pytest.approx(rest["mb_per_s"] / 2)
    assert any("redline plan" in n and "2 of 3 brokers" in n for n in rest["notes"])
    assert catching["np_sustained"] == rest["np_sustained"]
    assert catching["np_overloaded"] is None and catching["confirmed_s"] > 0
    trials = TableStore(spark, str(tmp_path / "tables")).trials_of("offline")
    by_state = {state: [t for t in trials if t.state == state] for state in (OFFLINE, CATCHING_UP)}
    assert all(len(t.evidence.brokers) == 2 for t in trials if t.state != ALL_BROKERS)
    assert {t.verdict for t in by_state[OFFLINE]} == {Verdict.SUSTAINED, Verdict.OVERLOADED}
    assert all(t.held and t.load == rest["np_sustained"] for t in by_state[CATCHING_UP])
    assert (tmp_path / "offline" / "boundary-1-broker-offline.png").exists()
    assert f"Goal default, {OFFLINE}" in (tmp_path / "offline" / "report.html").read_text()
