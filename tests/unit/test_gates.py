"""Gates before a trial, on scripted brokers."""

from __future__ import annotations

import pytest

from jobs.cluster.topic_plan import TopicState
from jobs.cluster.topic_set import TopicSet
from jobs.console.events import PhaseProgress, PhaseStarted, RecordingReporter
from jobs.trials.gates import FRESH_S, cold_brokers
from jobs.trials.recovery import Baseline
from jobs.trials.warm_up import AtRest
from metrics.sources.beans import UPTIME_MS
from metrics.sources.sample import BrokerSample
from tests.support.gated_cluster import TOPIC, Cluster, gates_of

BROKERS = frozenset({1, 2})
OLD_MS, YOUNG_MS = 3_600_000.0, 300_000.0


def polled(uptime_ms: float | None, produced: float | None, broker: int = 1) -> BrokerSample:
    values = {UPTIME_MS: uptime_ms, "produce_total_ms_count": produced}
    known = {name: value for name, value in values.items() if value is not None}
    return BrokerSample(broker, 10_000.0, known)


def test_a_broker_is_cold_until_it_was_loaded() -> None:
    for sample, loaded_s, is_cold in (
        (polled(OLD_MS, 20_000.0), None, False),
        (polled(OLD_MS, 9_999.0), None, True),  # runs for long, and is hardly used
        (polled(YOUNG_MS, 20_000.0), None, True),
        (polled(YOUNG_MS, 20_000.0), 9_701.0, False),  # loaded since its start, at 9,700
        (polled(YOUNG_MS, 20_000.0), 9_699.0, True),  # restarted after the last load
        (polled(OLD_MS, None), None, False),
        (polled(None, 0.0), None, False),  # not known
        (polled(YOUNG_MS, 0.0, broker=9), None, False),  # a controller
    ):
        assert bool(cold_brokers([sample], BROKERS, loaded_s)) is is_cold


class Bed:
    """Gates of a cluster, and the warm-ups that they started."""

    def __init__(self, cluster: Cluster, warms: bool = True, proofs: int = 0) -> None:
        self.cluster = cluster
        self.reporter = RecordingReporter()
        self.warmed: list[str] = []
        self.proven: list[str] = []
        self._proofs = proofs
        self.gates = gates_of(cluster, self if warms else None, self.reporter)
        self.gates.take_baseline()

    def light(self, topic: TopicSet, _: AtRest) -> bool:
        if len(self.proven) >= self._proofs:
            return False
        self.proven.append(topic.names[0])
        return True

    def warm(self, topic: TopicSet, _: AtRest) -> None:
        self.warmed.append(topic.names[0])
        self.cluster.now_s += 30.0

    def started_phases(self) -> list[str]:
        return [each.text for each in self.reporter.events if isinstance(each, PhaseStarted)]


def test_metrics_of_warm_brokers_are_proven_by_one_light_load() -> None:
    bed = Bed(Cluster(), proofs=1)
    first, last = bed.gates.polls_at_rest
    assert first[0].at_s < last[0].at_s
    for _ in range(2):
        assert bed.gates.pass_all(TOPIC) == ()
    assert (bed.proven, bed.warmed) == ([TOPIC.names[0]], [])
    without = Bed(Cluster())
    without.gates.pass_all(TOPIC)
    assert not without.proven


def test_a_cluster_at_rest_costs_a_trial_hardly_any_time() -> None:
    bed = Bed(Cluster())
    before_s = bed.cluster.now_s
    assert bed.gates.pass_all(TOPIC) == ()
    assert bed.cluster.now_s == before_s, "the first trial needs no check"
    bed.gates.record_load_end()
    bed.cluster.pause(1.0)  # judging, and appending to the tables
    before_s = bed.cluster.now_s
    assert bed.gates.pass_all(TOPIC) == ()
    assert 0 < bed.cluster.now_s - before_s < 0.1
    assert bed.started_phases() == [] and bed.warmed == []


def test_the_idle_time_at_rest_counts_beside_others_only() -> None:
    bed = Bed(Cluster())
    assert bed.gates.idle_at_rest == 1.0
    bed.gates.is_shared = True
    bed.gates._baselines = {1: Baseline(0.7), 2: Baseline(0.6)}
    assert bed.gates.idle_at_rest == 0.6
    bed.gates._baselines = {}
    assert bed.gates.idle_at_rest == 1.0


def test_brokers_that_stay_busy_make_a_trial_invalid() -> None:
    bed = Bed(Cluster(), proofs=1)
    bed.cluster.pause(FRESH_S)
    bed.cluster.idle = 0.5
    reasons = bed.gates.pass_all(TOPIC)
    assert [each.indicator for each in reasons] == ["not_at_rest", "not_at_rest"]
    assert "after 61 s: broker 1: request handlers idle 0.50" in reasons[0].text
    assert bed.started_phases() == ["waiting until the brokers are at rest"]
    assert bed.proven == [], "brokers that are not at rest get no load"
    assert any(isinstance(each, PhaseProgress) for each in bed.reporter.events)
    shared = Bed(Cluster(idle=0.5))  # others use it, so that it is as idle as before the run
    assert shared.gates.pass_all(TOPIC) == ()
    shared.cluster.idle = 0.2
    assert [each.indicator for each in shared.gates.pass_all(TOPIC)] == ["not_at_rest"] * 2


def test_partitions_that_are_in_sync_again_lower_the_baseline() -> None:
    cluster = Cluster()
    cluster.short = 5.0
    bed = Bed(cluster)
    assert bed.gates.pass_all(TOPIC) == ()
    assert bed.gates.under_replicated_at_rest == {1: 5.0, 2: 5.0}
    cluster.short = 2.0
    assert bed.gates.pass_all(TOPIC) == ()
    assert bed.gates.under_replicated_at_rest == {1: 2.0, 2: 2.0}
    cluster.short = 3.0
    reasons = bed.gates.pass_all(TOPIC)
    assert "not begun" in reasons[0].text
    assert "broker 1: 3 partitions under-replicated" in reasons[0].text
    assert bed.gates.under_replicated_at_rest == {1: 2.0, 2: 2.0}


def test_a_disk_that_is_not_quiet_is_reported_and_invalidates_no_trial() -> None:
    bed = Bed(Cluster())
    bed.cluster.pause(FRESH_S)
    bed.cluster.written_per_s = 5e6
    assert bed.gates.pass_all(TOPIC) == ()
    assert "still writes 5.0 MB/s to its disk" in bed.started_phases()[-1]


def test_a_topic_that_is_not_in_order_makes_a_trial_invalid() -> None:
    cluster = Cluster()
    cluster.checks = [TopicState(lagging=(0,)), TopicState()]
    bed = Bed(cluster)
    (reason,) = bed.gates.pass_all(TOPIC)
    assert reason.indicator == "topic_not_ready"
    assert "partition 0 with a replica out of sync" in reason.text
    assert bed.gates.pass_all(TOPIC) == ()


def test_cold_brokers_are_warmed_up_once_and_after_a_restart() -> None:
    bed = Bed(Cluster(up_s=20.0))
    for _ in range(2):
        assert bed.gates.pass_all(TOPIC) == ()
        assert bed.warmed == ["t"]
    bed.cluster.started_s = bed.cluster.now_s + 0.5
    bed.cluster.pause(5.0)
    assert bed.gates.pass_all(TOPIC) == ()
    assert bed.warmed == ["t", "t"]
    assert Bed(Cluster(up_s=20.0), warms=False).gates.pass_all(TOPIC) == ()


def test_after_an_overload_the_time_to_rest_is_measured() -> None:
    bed = Bed(Cluster())
    bed.cluster.idle = 0.1
    bed.gates.record_load_end()
    ended_s = bed.cluster.now_s
    pauses = 0

    def pause(duration_s: float) -> None:
        nonlocal pauses
        pauses += 1
        bed.cluster.now_s += duration_s
        bed.cluster.idle = 1.0 if pauses >= 5 else 0.1

    bed.gates.pause = pause
    recovery = bed.gates.await_recovery()
    assert recovery.since_s is not None
    assert recovery.since_s - ended_s == pytest.approx(4.5, abs=1.0)
    assert bed.started_phases() == ["overloaded: waiting for the brokers to recover"]


def test_brokers_that_just_recovered_skip_one_check() -> None:
    bed = Bed(Cluster())
    bed.gates.record_load_end()
    assert bed.gates.await_recovery().since_s is not None
    before_s = bed.cluster.now_s
    assert bed.gates.pass_all(TOPIC) == ()
    assert bed.cluster.now_s - before_s < 0.1
    bed.cluster.idle = 0.1
    assert [each.indicator for each in bed.gates.pass_all(TOPIC)] == ["not_at_rest"] * 2
    bed.cluster.idle = 1.0
    bed.gates.await_recovery()
    bed.cluster.pause(FRESH_S + 1)
    bed.cluster.idle = 0.1
    assert bed.gates.pass_all(TOPIC) != (), "that was too long ago"
    bed.cluster.idle = 1.0
    bed.gates.await_recovery()
    bed.gates.record_load_end()
    bed.cluster.idle = 0.1
    assert bed.gates.pass_all(TOPIC) != (), "there was a load in between"
