"""Loads that harm other clients of real brokers end in time, and guards stop the run."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaTimeoutError

from jobs.cluster.connect import connect
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from search.early_stop import FEWEST
from tests.support.commands import RunningCommand, document_in, finished
from tests.support.neighbors import Neighbor, steady
from tests.support.processes import becomes, beside
from tests.support.search_impact import impact_of

log = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.long, pytest.mark.timeout(900), pytest.mark.usefixtures("quiet_neighbors"),
]  # fmt: skip

LIMIT = 80
"""Producers that the brokers take at the limit, without followers and others."""
OVERLOAD = 5 * LIMIT // 4
RUN_S = 500.0
"""Deadline for a whole run on two busy cores [s]."""
LATE_S = 1.0
"""An early end is announced so long before, and looks are half a second apart [s]."""


def options_on(testbed: Testbed) -> tuple[str, ...]:
    return (
        f"--cluster={cluster_file(testbed.folder)}", "--workload=calibrated", "--yes",
        "--set=workload.message_bytes=[1000]", "--set=cluster.warm_up_max_s=0",
    )  # fmt: skip


def test_an_overload_on_slow_isr_settings_ends_in_time(tmp_path: Path) -> None:
    """With `replica.lag.time.max.ms` at Kafka's default, only a sustained load needs its window."""
    overrides = {"replica.lag.time.max.ms": 30_000}
    bed = start("calibrated", brokers=3, root=tmp_path / "bed", name="foreign", overrides=overrides)
    with bed as testbed:
        finished(
            "find-limit", *options_on(testbed), "--set=workload.topic.replication_factor=2",
            "--set=workload.trial.measure_s=45", "--set=goal.search.method=bisection",
            # Bisection begins in the middle of 0 and its guess.
            f"--set=goal.search.load_start_max={2 * OVERLOAD}",
            "--set=goal.search.budget.trials=1", "--set=goal.search.check_for_change=false",
            folder=tmp_path, deadline_s=RUN_S, code=3,
        )  # fmt: skip
    log.warning("impact %s", impact_of(tmp_path / "out" / "tables"))
    (trial,) = DeltaTable(tmp_path / "out" / "tables" / "trials").to_pyarrow_table().to_pylist()
    assert trial["np"] == OVERLOAD
    assert trial["verdict"] == "OVERLOADED", trial["reasons"]
    # Brokers that a busy machine samples rarely need four samples after the first 5 s.
    rare_s = 5.0 + (FEWEST + 1) * trial["sample_interval_s"]
    assert trial["load_s"] <= max(10.0, rare_s) + LATE_S


@pytest.mark.parametrize(
    ("off", "words", "length"),
    [
        ("canary_p99_ms_max", "other clients write", ("--duration", "60")),
        ("others_fall_max", "(p99 of the canaries)", ("--set=workload.trial.measure_s=60",)),
    ],
    ids=["throughput", "waits"],
)
def test_a_load_that_holds_others_up_is_stopped(
    off: str, words: str, length: tuple[str, ...], tmp_path: Path
) -> None:
    bed = start("calibrated", brokers=3, root=tmp_path / "bed", name="foreign")
    with (
        bed as testbed,
        Neighbor(testbed, steady(300.0), in_flight=1, record_bytes=200, batch_bytes=4_096),
    ):
        text = finished(
            "traffic", *options_on(testbed), f"--np={2 * LIMIT}", f"--set=goal.guards.{off}=null",
            *length, folder=tmp_path, deadline_s=RUN_S, code=5,
        )  # fmt: skip
    assert words in text
    assert document_in(tmp_path)["status"] == "stopped by a guard"


def test_a_resumed_run_keeps_its_own_canaries(tmp_path: Path) -> None:
    """It deletes what the earlier part of the run left, and nothing of its own."""
    with start("calibrated", brokers=1, root=tmp_path / "bed", name="foreign") as testbed:
        cluster, *others = options_on(testbed)
        trials = "--set=goal.search.budget.trials="
        finished(
            "find-limit", cluster, *others, f"{trials}1", "--set=workload.trial.measure_s=5",
            "--set=workload.topic.replication_factor=1", folder=tmp_path, deadline_s=RUN_S, code=3,
        )  # fmt: skip
        run_id = document_in(tmp_path)["run_id"]
        finished(
            "find-limit", f"--resume={run_id}", cluster, "--yes", others[-1], f"{trials}2",
            folder=tmp_path, deadline_s=RUN_S, code=3,
        )  # fmt: skip
    impact = document_in(tmp_path)["impact"]
    assert (impact["canary_failures"], impact["guards"]) == (0, [])
    assert impact["canary_records"] > 0


def _send_too_large(testbed: Testbed, begins: threading.Event, over: threading.Event) -> None:
    """Once the event is set, send records that are larger than their topic takes, 30 a second."""
    begins.wait()
    with connect(testbed.bootstrap_servers) as admin:
        admin.create_topic("audit", {0: [1]}, {"max.message.bytes": "1000"})
    producer = KafkaProducer(
        bootstrap_servers=list(testbed.bootstrap_servers), batch_size=1, retries=0
    )
    while not over.wait(1.0 / 30.0):
        producer.send("audit", bytes(2_000))
    with suppress(KafkaTimeoutError):  # brokers refuse what is left, too
        producer.close(timeout=5)


def _read(testbed: Testbed, topic: str, starves: threading.Event, over: threading.Event) -> None:
    """Read a topic in the group `billing`, and stay in the group without reading once starved."""
    consumer = KafkaConsumer(
        topic, bootstrap_servers=list(testbed.bootstrap_servers), group_id="billing",
        auto_offset_reset="earliest", auto_commit_interval_ms=500,
    )  # fmt: skip
    while not over.is_set():
        if starves.is_set():
            consumer.pause(*consumer.assignment())
        consumer.poll(timeout_ms=200)
    consumer.close(autocommit=False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # kafka-python's
@pytest.mark.parametrize(
    ("harms", "words"),
    [
        ("errors", "produce requests of other clients get"),
        ("lag", "the lag of the consumer group billing of other clients grew"),
    ],
)
def test_harm_that_begins_under_a_load_stops_it(harms: str, words: str, tmp_path: Path) -> None:
    bed = start("calibrated", brokers=3, root=tmp_path / "bed", name="foreign")
    begins, over = threading.Event(), threading.Event()
    with bed as testbed, Neighbor(testbed, steady(100.0), record_bytes=200) as neighbor:
        command = RunningCommand(
            "traffic", *options_on(testbed), f"--np={LIMIT // 4}",
            "--set=workload.trial.measure_s=120", "--set=goal.guards.others_lag_s_max=5",
            folder=tmp_path,
        )  # fmt: skip
        does = {
            "lag": lambda: _read(testbed, neighbor.topic, begins, over),
            "errors": lambda: _send_too_large(testbed, begins, over),
        }
        with beside(does[harms], over), command:
            try:
                assert becomes(lambda: _written(testbed.folder) >= 1_000_000, RUN_S), command.text
            finally:
                begins.set()
            began_s = time.monotonic()
            code = command.wait(RUN_S)
    log.warning(
        "stopped %.1f s after the harm began:\n%s", time.monotonic() - began_s, command.text
    )
    assert code == 5, command.text[-2_000:]
    assert words in command.text
    impact = document_in(tmp_path)["impact"]
    assert words in " ".join(impact["guards"])


BRAKE = "redline-stop"
BRAKED_S = 2.0
LOOK_S = 0.1


def _written(folder: Path) -> int:
    """Bytes in the logs of the run's loads on all brokers; 0 without its topics."""
    total = 0
    for root, _, names in os.walk(folder):
        if Path(root).name.startswith("redline-") and "-canary-" not in Path(root).name:
            for name in names:
                with suppress(FileNotFoundError):  # the run deletes its topics
                    total += (Path(root) / name).stat().st_size if name.endswith(".log") else 0
    return total


@pytest.mark.parametrize("hangs", [False, True], ids=["all answer", "one hangs"])
def test_an_operator_stops_a_load_by_a_topic(hangs: bool, tmp_path: Path) -> None:
    bed = start("calibrated", brokers=3, root=tmp_path / "bed", name="foreign")
    with bed as testbed, connect(testbed.bootstrap_servers) as admin:
        command = RunningCommand(
            "traffic", *options_on(testbed), f"--np={LIMIT // 2}",
            "--set=workload.trial.measure_s=120", folder=tmp_path,
        )  # fmt: skip
        with command:
            until_s = time.monotonic() + 180.0
            while (seen := _written(testbed.folder)) < 1_000_000:
                assert time.monotonic() < until_s, command.text
                time.sleep(LOOK_S)
            admin.client._controller_id = 1  # the broker that passes the request on
            if hangs:
                testbed.kill_broker(3, signal.SIGSTOP)
            admin.create_topic(BRAKE, {0: [1]}, {})
            created_s = grown_s = time.monotonic()
            while (now := _written(testbed.folder)) and time.monotonic() < created_s + 8.0:
                if now > seen:
                    grown_s = time.monotonic()
                seen = now
                time.sleep(LOOK_S)
            if hangs:
                testbed.kill_broker(3, signal.SIGCONT)
            code = command.wait(90.0)
    log.warning("the load ended %.1f s after the order:\n%s", grown_s - created_s, command.text)
    assert code == 5, command.text[-2_000:]
    assert f"the topic {BRAKE} exists" in command.text
    assert grown_s - created_s <= BRAKED_S + 2 * LOOK_S
