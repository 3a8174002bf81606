"""Each resource made to bind on purpose, on real brokers: is it the one that is named?

The figures are logged as a table for docs/attribution.md; see there how to run this.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from kafka.admin import ConfigResourceType

from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from metrics.trial.task import TaskReport
from metrics.windows.resource import Resource
from search.model import Verdict
from tests.support.loaded_brokers import LoadedBrokers, Route, Seen, loaded
from tests.support.patterns import producer_pattern
from tests.support.rate_limited_link import rate_limited_link

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
log = logging.getLogger(__name__)

ON_ONE = {partition: [1] for partition in range(4)}
FOLLOWED = {partition: [1, 2] for partition in range(4)}
MESSAGES = producer_pattern(1_000, 1_000.0, linger_ms=20.0)
LARGE_BATCHES = producer_pattern(
    1_000, 1_000.0, linger_ms=200.0, batch_size=200_000, pool_bytes=4_000_000
)
# Brokers compress again what producers sent plain: work for a handler's core. In large batches
# there is little else to do.
SLOW_APPENDS = {"compression.type": "gzip"}
PLENTY = {"log.retention.bytes": "134217728"}


@contextmanager
def broker_of(spark: SparkSession, profile: str, **properties: str) -> Iterator[LoadedBrokers]:
    overrides = {key.replace("__", "."): value for key, value in properties.items()}
    with (
        start(profile, brokers=1, overrides=PLENTY | overrides, name="bound") as running,
        loaded(running, spark._jvm) as under_load,
    ):
        yield under_load


def say(seen: Seen) -> None:
    log.warning("%s: %s", seen.judgement.verdict.value, seen.judgement.attribution)
    for reason in seen.judgement.reasons:
        log.warning("  %s", reason.text)
    for row in seen.evidence.resources:
        cells = (row.utilization, row.saturation, row.errors)
        used, waiting, failed = ("–" if cell is None else f"{cell:.2f}" for cell in cells)
        log.warning(
            "| %d | %s | %s | %s %s | %s %s |",
            row.broker_id,
            row.resource.value,
            used,
            waiting,
            row.saturation_unit,
            failed,
            row.errors_unit,
        )


def assert_bound_by(resource: Resource, seen: Seen) -> None:
    say(seen)
    assert seen.judgement.verdict is Verdict.OVERLOADED, seen.judgement.reasons
    assert seen.judgement.limited_by is resource, seen.judgement.attribution


def test_a_disk_that_every_append_waits_for(spark: SparkSession) -> None:
    with (
        broker_of(spark, "disk-bound") as brokers,
        brokers.topic(ON_ONE, {}) as topic,
    ):
        assert_bound_by(Resource.DISK, brokers.trial(topic, ON_ONE, MESSAGES, np=60))


def test_one_handler_with_work_for_more(spark: SparkSession) -> None:
    with (
        broker_of(spark, "default", num__io__threads="1") as brokers,
        brokers.topic(ON_ONE, SLOW_APPENDS) as topic,
    ):
        assert_bound_by(
            Resource.REQUEST_HANDLERS, brokers.trial(topic, ON_ONE, LARGE_BATCHES, np=80)
        )


def test_compression_on_every_core(spark: SparkSession) -> None:
    with (
        broker_of(spark, "default", num__io__threads="8") as brokers,
        brokers.topic(ON_ONE, SLOW_APPENDS) as topic,
    ):
        assert_bound_by(Resource.CPU, brokers.trial(topic, ON_ONE, LARGE_BATCHES, np=160))


def test_a_rate_limited_interface(spark: SparkSession) -> None:
    with (
        broker_of(spark, "default") as brokers,
        brokers.topic(ON_ONE, {}) as topic,
        rate_limited_link(40, brokers.addresses[1]) as link,
    ):
        seen = brokers.trial(
            topic,
            ON_ONE,
            MESSAGES,
            np=8,
            route=Route({1: link.address}, link.inside, 40.0),
        )
        assert_bound_by(Resource.NETWORK, seen)


def test_a_follower_that_may_not_fetch_faster(spark: SparkSession) -> None:
    overrides = PLENTY | {"replica.lag.time.max.ms": "2000"}
    with (
        start("default", brokers=2, overrides=overrides, name="bound") as running,
        loaded(running, spark._jvm) as brokers,
        brokers.topic(FOLLOWED, {"follower.replication.throttled.replicas": "*"}) as topic,
    ):
        limit = {"follower.replication.throttled.rate": "100000"}
        brokers.alter(ConfigResourceType.BROKER, "2", limit)
        route = Route(brokers.addresses, lambda work: _while_paused(running, 2, work))
        seen = brokers.trial(topic, FOLLOWED, MESSAGES, np=4, warmup_s=10.0, route=route)
        assert_bound_by(Resource.REPLICATION, seen)
        assert "the replicas on broker 2 by up to" in seen.judgement.attribution


def _while_paused(running: Testbed, broker_id: int, work: Callable[[], TaskReport]) -> TaskReport:
    """Do the work while a broker hangs so long that it leaves the ISR, but is not fenced.

    A follower is throttled only while it is out of the ISR, from where it then never returns.
    """

    def pause() -> None:
        threading.Event().wait(2.0)
        running.kill_broker(broker_id, signal.SIGSTOP)
        threading.Event().wait(5.0)
        running.kill_broker(broker_id, signal.SIGCONT)

    thread = threading.Thread(target=pause)
    thread.start()
    row = work()
    thread.join()
    return row


def test_a_quota_makes_the_trial_invalid_and_is_named(spark: SparkSession) -> None:
    with (
        broker_of(spark, "default") as brokers,
        brokers.topic(ON_ONE, {}) as topic,
        brokers.quota("producer_byte_rate", 200_000.0),
    ):
        seen = brokers.trial(topic, ON_ONE, MESSAGES, np=4)
    say(seen)
    assert seen.judgement.verdict is Verdict.INVALID
    named = {reason.resource for reason in seen.judgement.reasons}
    assert named == {Resource.QUOTA}, seen.judgement.reasons
