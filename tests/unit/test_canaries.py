"""Canaries: what they keep, what a window shows, and when they stop a run."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.cluster.admin import AdminError, Partition, TopicSize
from jobs.cluster.health import Partitions
from jobs.config.goal import GuardLimits
from jobs.trials.canaries import AFTER_S, KEPT_S, Canaries, open_canaries
from jobs.trials.control_server import TaskChannel
from jobs.trials.guards import BLIND_S, HARM_S, Guards
from jobs.trials.harm_rules import BrokerAbsence
from metrics.common.errors import GuardStopError
from metrics.reporting.impact import Impact, impact_of
from metrics.trial.canary import (
    REST_LEAST,
    CanaryReading,
    CanaryTime,
    CanaryWindow,
    canary_windows,
    worst_of,
)
from metrics.trial.trial import Trial
from search.model import Verdict
from tests.support.guarded_cluster import Cluster
from tests.support.processes import PATIENCE_S
from tests.support.rows import PATTERN
from tests.support.scripted_admin import FakeTime, ScriptedAdmin


def times(broker_id: int, *acked_ms: float, from_s: float = 100.0) -> list[CanaryTime]:
    """Records sent one second after the other."""
    return [CanaryTime(broker_id, from_s + n, each, each + 1) for n, each in enumerate(acked_ms)]


def test_a_window_has_the_times_of_its_own_records() -> None:
    seen = [*times(1, 5.0, 7.0, 900.0), *times(2, 3.0, 3.0, 3.0)]
    first, second = canary_windows(seen, 101.0, 103.0, times(1, 2.0, 4.0, from_s=0.0))
    assert (first.broker_id, first.records, first.max_ms, first.p99_ms) == (1, 2, 900.0, 900.0)
    assert first.p50_ms == pytest.approx(453.5)
    assert (first.read_p99_ms, first.at_rest_p99_ms) == (901.0, 4.0)
    assert first.over_time_p99_ms == (7.0, 900.0)
    assert (second.records, second.p99_ms) == (2, 3.0)
    assert math.isnan(second.at_rest_p99_ms)
    (window,) = canary_windows(times(1, 5.0), 99.0, 101.5)
    assert window.over_time_p99_ms == pytest.approx((math.nan, 5.0, math.nan), nan_ok=True)


def test_the_worst_broker_counts_by_its_last_records() -> None:
    rest = [*times(1, *[2.0] * 5, from_s=0.0), *times(2, *[4.0] * 5, from_s=0.0)]
    recent = [*times(1, 900.0, 5.0), *times(2, 8.0, 9.0)]
    assert worst_of(recent, rest, 100.0) == CanaryReading(1, 900.0, 2.0)
    assert worst_of(recent, rest, 100.95) == CanaryReading(2, 9.0, 4.0)
    assert worst_of(recent, rest[: REST_LEAST - 1], 0.0) is None
    for p99_ms, rest_ms, is_beyond in (
        (1_001.0, 2.0, True), (999.0, 2.0, False), (1_500.0, 200.0, False), (2_001.0, 200.0, True)
    ):  # fmt: skip
        assert CanaryReading(1, p99_ms, rest_ms).is_beyond(1_000.0, 10.0) is is_beyond


class Kept(Canaries):
    """Canaries of brokers 1 and 2 without a connection, on a clock of their own."""

    def __init__(self) -> None:
        self.clock = FakeTime()
        super().__init__({}, "t", (1, 2), self.clock)

    def send(self, partition: int, acked_ms: float | None) -> None:
        number = self.sent(partition)
        if acked_ms is not None:
            self.clock.pause(acked_ms / 1_000.0)
            self.acked(number)


def test_records_are_acknowledged_read_back_missing_or_failed() -> None:
    kept = Kept()
    kept.send(1, 2.0)
    kept.clock.pause(0.02)
    kept.read(0)
    kept.read(17)
    kept.send(0, None)
    kept.clock.pause(3.0)
    assert [(each.broker_id, round(each.acked_ms), each.has_failed) for each in kept.times()] == [
        (2, 2, False), (1, 3_000, False)
    ], "a record without an acknowledgement has waited until now"  # fmt: skip
    assert kept.times()[0].read_ms == pytest.approx(22.0)
    kept.failed(OSError("reset"))
    kept.clock.pause(60.0)
    assert [(each.has_failed, round(each.acked_ms)) for each in kept.times()] == [
        (False, 2), (True, 3_000)
    ]  # fmt: skip
    assert kept.trouble == "OSError: reset"


def test_the_windows_after_the_last_load_hold_no_record_from_under_it() -> None:
    kept = Kept()
    kept.send(0, 4_000.0)
    loaded_until_s = kept.clock()

    def pause(seconds: float) -> None:
        assert seconds == AFTER_S
        for _ in range(4):
            kept.send(0, 2.0)
            kept.send(1, 3.0)
        kept.clock.pause(seconds - 0.02)

    found = kept.windows_after(loaded_until_s, pause)
    assert [(each.broker_id, each.records) for each in found] == [(1, 4), (2, 4)]
    assert [round(each.p99_ms) for each in found] == [2, 3]
    assert kept.windows_after(loaded_until_s, kept.clock.pause)[0].records == 4, "no further wait"


def test_records_that_fail_at_once_are_no_quick_answers() -> None:
    kept = Kept()
    since_s = kept.clock()
    for _ in range(40):
        kept.send(0, 2.0)
    assert kept.take_rest(since_s) == (
        "canaries got too few acknowledgements before the run, so no guard watches how long "
        "clients of broker 2 wait: no answer in time"
    )
    kept.clock.pause(10.0)
    for _ in range(40):
        number = kept.sent(0)
        kept.clock.pause(0.002)
        kept.failed(OSError("too few replicas"), number)
    (window, *_) = kept.windows(since_s + 5.0, kept.clock())
    assert (window.records, window.failed) == (40, 40)
    assert math.isnan(window.p99_ms) and window.at_rest_p99_ms == pytest.approx(2.0)
    reading = kept.worst()
    assert reading is not None and reading.is_beyond(1_000.0, 10.0)
    assert reading.words == (
        "100% of the canaries' records to broker 1 fail, compared with 0% before the run"
    )


def test_records_are_kept_for_a_while() -> None:
    kept = Kept()
    for _ in range(100):
        kept.send(0, 1.0)
        kept.clock.pause(KEPT_S / 50)
    assert 49 <= len(kept.times()) <= 52


class Watched:
    """Guards of a shared cluster with canaries."""

    def __init__(self) -> None:
        self.kept = Kept()
        limits, self.cluster = GuardLimits(), Cluster()
        self.guards = Guards(limits, self.cluster, str.isdigit, print, self.kept.clock)
        self.guards.open()
        self.guards.canaries = self.kept
        self.load(5.0, 10_000.0)  # while Spark starts
        since_s = self.kept.clock()
        self.load(5.0, 10.0)
        self.kept.take_rest(since_s)

    def load(self, seconds: float, acked_ms: float) -> None:
        """Let records take so long, with a check each second."""
        for _ in range(int(seconds)):
            began_s = self.kept.clock()
            self.kept.send(0, acked_ms)
            self.kept.send(1, 5.0)
            self.kept.clock.pause(max(0.0, 1.0 - (self.kept.clock() - began_s)))
            self.guards._check()


def test_clients_that_wait_for_too_long_stop_the_run() -> None:
    watched = Watched()
    for seconds, acked_ms in ((6, 1_500.0), (10, 20.0), (6, 1_500.0), (60, 700.0)):
        watched.load(seconds, acked_ms)
        assert watched.guards.tripped is None, "an overload that ends in time, and short waits"
    watched.load(HARM_S + 3, 1_500.0)
    with pytest.raises(GuardStopError, match=r"for \d+ s, clients of broker 1 wait 1,500 ms"):
        watched.guards.require_untripped()


def test_clients_whose_records_fail_for_too_long_stop_the_run() -> None:
    watched = Watched()
    for _ in range(int(HARM_S) + 3):
        for _ in range(2):
            watched.kept.failed(OSError("too few replicas"), watched.kept.sent(0))
        watched.load(1, 5.0)
    with pytest.raises(
        GuardStopError, match=r"for 15 s, \d+% of the canaries' records to broker 1"
    ):
        watched.guards.require_untripped()


def test_canaries_without_a_connection_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    watched = Watched()
    watched.kept.failed(OSError("no broker answers"))
    watched.kept.clock.pause(BLIND_S + 1.0)
    for _ in range(3):
        watched.guards._check()
    assert capsys.readouterr().out == (
        "the canaries have had no connection for 32 s, so no guard watches the latency of other "
        "clients: OSError: no broker answers\n"
    )


def test_clients_that_wait_end_a_load_while_the_brokers_answer_no_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jobs.trials.guards.INTERVAL_S", 0.001)
    watched, answers, ended = Watched(), threading.Event(), threading.Event()
    channel = TaskChannel("127.0.0.1", 1, 1, lambda _: None)
    monkeypatch.setattr(channel, "end_now", ended.set)

    def answer_late() -> Partitions:
        answers.wait(PATIENCE_S)
        return frozenset()

    monkeypatch.setattr(watched.cluster, "under_replicated", answer_late)
    until_s = time.monotonic() + PATIENCE_S
    with watched.guards.watch(PATTERN, channel):
        while not ended.wait(0.01) and time.monotonic() < until_s:
            watched.kept.send(0, 1_500.0)
        is_ended = ended.is_set()
        answers.set()
    assert is_ended
    assert watched.guards.tripped is not None
    assert "s, clients of broker 1 wait" in watched.guards.tripped


def test_waits_for_a_broker_that_left_stop_no_run() -> None:
    watched = Watched()
    cluster = watched.cluster
    absence = watched.guards.absence = BrokerAbsence(cluster.serving, 1_800.0)
    cluster.brokers = frozenset({1, 3})
    watched.load(60, 30_000.0)
    assert absence.why == "broker 2 left the cluster"
    cluster.brokers = frozenset({1, 2, 3})
    watched.load(6, 1_500.0)
    watched.load(10, 20.0)
    assert watched.guards.tripped is None
    watched.load(HARM_S + 3, 1_500.0)
    assert watched.guards.tripped is not None


class Placing(ScriptedAdmin):
    """A cluster that may refuse assignments."""

    refuses = False
    config: Mapping[str, str]
    left: dict[int, Partition]

    def create_topic(
        self,
        topic: str,
        placement: Mapping[int, Sequence[int]] | TopicSize,
        config: Mapping[str, str],
        validate_only: bool = False,
    ) -> dict[str, str | None]:
        self.config = config
        if self.refuses and not isinstance(placement, TopicSize):
            raise AdminError("no (PolicyViolationError)", "PolicyViolationError")
        if isinstance(placement, TopicSize):
            placement = {n: [1 + n % 3] for n in range(placement.partitions)}
        return super().create_topic(topic, placement, config, validate_only)

    def broker_config(
        self, broker_id: int, names: Sequence[str] | None = None
    ) -> dict[str, str | None]:
        return {"min.insync.replicas": self.least}

    least = "1"


def opened(admin: Placing, monkeypatch: pytest.MonkeyPatch, replicas: int = 3) -> list[str]:
    """Open canaries without connections and close them; returns the warnings."""
    monkeypatch.setattr(Canaries, "_run", lambda _: None)
    warnings: list[str] = []
    with ExitStack() as stack:
        open_canaries(admin, "redline-r", replicas, {}, stack, warnings.append, {"marked": "r"})
        admin.left = dict(admin.topics.get("redline-r-canary", {}))
    return warnings


def test_their_topic_has_a_partition_on_each_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    for refuses in (False, True):
        admin = Placing()
        admin.refuses = refuses
        assert opened(admin, monkeypatch) == []
        assert sorted(each.leader for each in admin.left.values()) == [1, 2, 3]
        assert not admin.topics


def test_their_topic_needs_as_many_replicas_in_sync_as_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for least, wanted, replicas, in_sync in (
        ("1", 1, 1, "1"), ("2", 1, 3, "2"), ("2", 2, 3, "2"), ("3", 3, 3, "3"), ("5", 3, 3, "3")
    ):  # fmt: skip
        admin = Placing()
        admin.least = least
        assert opened(admin, monkeypatch, wanted) == []
        assert {len(each.replicas) for each in admin.left.values()} == {replicas}
        assert (admin.config["min.insync.replicas"], admin.config["marked"]) == (in_sync, "r")


def test_their_topic_is_deleted_where_a_step_after_its_creation_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for step, cause, is_deleted in (
        ("partitions_seen_by", "KafkaTimeoutError", True),
        ("create_topic", "KafkaTimeoutError", True),
        ("create_topic", "TopicAlreadyExistsError", False),
    ):
        admin = Placing()
        admin.fail[step] = [AdminError(f"no ({cause})", cause)]
        (warning,) = opened(admin, monkeypatch)
        assert warning.startswith("there are no canaries")
        assert ("delete redline-r-canary" in admin.requests) is is_deleted
        assert not admin.topics


def impact(*trials: tuple[float, Verdict, float, float], shared: bool = True) -> Impact:
    """The impact of trials: MB/s, verdict, time of the load [s], and p99 of the canaries [ms]."""

    def trial(mb_per_s: float, verdict: Verdict, load_s: float, p99_ms: float) -> Trial:
        lost = int(verdict is Verdict.OVERLOADED)
        seen = CanaryWindow(1, records=20, p99_ms=p99_ms, at_rest_p99_ms=3.0, failed=lost)
        counts = SimpleNamespace(acked_total=1_000, failed_total=10)
        sockets = {1: SimpleNamespace(connections=40), 2: SimpleNamespace(connections=40)}
        client = SimpleNamespace(counts=counts, producer_sockets=sockets, consumer_sockets={})
        reasons = [SimpleNamespace(indicator="guard", text="ended by a guard: a disk is full")]
        has_readings = shared and verdict is not Verdict.INVALID  # a guard ends the trial before
        found = SimpleNamespace(
            evidence=SimpleNamespace(
                canaries=(seen, CanaryWindow(2)) if has_readings else (),
                closed_loop=False,
                load_s=load_s,
                client=client,
            ),
            pattern=SimpleNamespace(
                peak_mb_per_s=mb_per_s, partitions=60, written_bytes=lambda n: 3_000.0 * n
            ),
            judgement=SimpleNamespace(
                verdict=verdict, reasons=reasons if verdict is Verdict.INVALID else []
            ),
        )
        return cast(Trial, found)

    return impact_of([trial(*each) for each in trials])


SUSTAINED = (12.0, Verdict.SUSTAINED, 30.0, 12.0)
OVER = ((16.0, Verdict.OVERLOADED, 9.4, 2_100.0), (14.0, Verdict.OVERLOADED, 7.0, 900.0))


def test_a_report_states_what_the_run_did_to_others(snapshot: SnapshotAssertion) -> None:
    assert impact(SUSTAINED, *OVER).load == snapshot(name="overloads")
    assert impact(SUSTAINED).load == snapshot(name="none")
    assert impact(OVER[0], shared=False).sentences == ()
    assert impact(SUSTAINED).sentences == snapshot(name="sustained")
    stopped = (64.0, Verdict.INVALID, 4.0, 9_000.0)
    assert impact(SUSTAINED, *OVER, stopped).sentences == snapshot(name="stopped")
    after = (CanaryWindow(1, records=10, p99_ms=4.0), CanaryWindow(2, records=10, p99_ms=6.0))
    assert impact_of([], after).p99_after_ms == 6.0
    assert replace(impact(SUSTAINED), p99_after_ms=6.0).waits == snapshot(name="after")
