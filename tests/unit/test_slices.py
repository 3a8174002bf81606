"""A running trial as slices, and the decisions of the stop rule."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest

from metrics.judging.slices import Acked, Slices
from metrics.judging.thresholds import Thresholds
from metrics.judging.verdict import progress_of
from metrics.sources.beans import HANDLER_IDLE_NS, NETWORK_WAIT_NS, UPTIME_MS
from metrics.sources.sample import BrokerSample
from metrics.trial.evidence import ClusterFacts
from metrics.windows.cluster import any_isr_changed_share
from search.early_stop import Progress, StopRule
from search.model import Verdict
from tests.support.evidence import goal

START_S, LENGTH_S, INTERVAL_S = 100.0, 20.0, 1.0
OFFERED_PER_S = 1_000.0


def _samples(idle: float, seconds: int, under_replicated: float = 0.0) -> list[BrokerSample]:
    return [
        BrokerSample(
            broker,
            START_S - 1 + second,
            {
                UPTIME_MS: 1_000.0 * second,
                HANDLER_IDLE_NS: second * idle * 1e9,
                "isr_shrinks": 0.0,
                "under_replicated_partitions": under_replicated if broker == 2 else 0.0,
            },
        )
        for second in range(seconds + 2)
        for broker in (1, 2)
    ]


def _acked(seconds: int, share: float = 1.0) -> Acked:
    return [(float(s), int(OFFERED_PER_S * share * s)) for s in range(1, seconds + 1)]


def _slices(samples: list[BrokerSample], acked: Acked) -> Slices:
    window = (START_S, START_S + LENGTH_S)
    return Slices(samples, (1, 2), window, INTERVAL_S, acked, OFFERED_PER_S)


def _progress(
    idle: float = 0.9,
    seconds: int = 10,
    share: float = 1.0,
    under_replicated: float = 0.0,
    thresholds: Thresholds | None = None,
) -> Progress:
    slices = _slices(_samples(idle, seconds, under_replicated), _acked(seconds, share))
    return progress_of(slices, thresholds or Thresholds())


def test_slices_lie_between_the_samples_of_the_window() -> None:
    progress = _progress(idle=0.6, seconds=10)
    assert progress.planned == 20
    assert progress.means["request_handler_idle/1"] == pytest.approx([0.5] * 10)
    assert progress.shares["isr"] == ([False] * 11, 0.5)
    assert progress.stocks["achieved"] == [0.0] * 10


def test_a_clearly_idle_trial_may_end() -> None:
    assert StopRule().verdict(_progress(idle=0.9)) is Verdict.SUSTAINED


def test_a_trial_near_its_threshold_continues() -> None:
    assert StopRule().verdict(_progress(idle=0.205)) is None


def test_a_hopeless_overload_may_end() -> None:
    assert StopRule().verdict(_progress(idle=0.02)) is Verdict.OVERLOADED


@pytest.mark.parametrize(
    ("idle", "verdict"),
    [(0.9, Verdict.SUSTAINED), (0.5, None), (0.2, Verdict.OVERLOADED)],
)
def test_the_busiest_network_thread_ends_a_trial_by_its_own_limit(
    idle: float, verdict: Verdict | None
) -> None:
    def waited(each: BrokerSample) -> dict[str, float]:
        threads = {1: idle, 2: 0.95} if each.broker_id == 2 else {1: 0.95}
        ns = 1e9 * (each.at_s - START_S + 1)
        return {f"{NETWORK_WAIT_NS}:PLAINTEXT/{n}": ns * share for n, share in threads.items()}

    samples = [replace(each, values={**each.values, **waited(each)}) for each in _samples(0.9, 10)]
    progress = progress_of(_slices(samples, _acked(10)), goal(network_idle_min=0.5))
    assert progress.means["network_idle/2"] == pytest.approx([(1 - idle) / 0.5] * 10)
    assert StopRule().verdict(progress) is verdict


def test_one_sample_with_too_long_a_queue_is_an_overload() -> None:
    """Each broker has its own limit; the size of the other broker's queue is unknown."""

    def waiting(requests: float) -> Progress:
        at = defaultdict(float, {START_S + 4: requests})
        samples = [
            replace(each, values={**each.values, "request_queue_size": at[each.at_s]})
            if each.broker_id == 2
            else each
            for each in _samples(0.9, 14)
        ]
        facts = ClusterFacts(queued_max_requests={2: 500.0})
        slices = replace(_slices(samples, _acked(14)), cluster=facts)
        return progress_of(slices, goal(request_queue_share_max=0.8))

    assert StopRule().verdict(waiting(401.0)) is Verdict.OVERLOADED
    assert StopRule().verdict(waiting(400.0)) is None, "a later sample may still be beyond it"
    assert [name for name in waiting(0.0).shares if "queue" in name] == ["request_queue/2"]


def test_a_shortfall_that_grows_is_an_overload_and_a_small_one_keeps_the_trial_going() -> None:
    assert StopRule().verdict(_progress(share=0.9)) is Verdict.OVERLOADED
    assert StopRule().verdict(_progress(share=0.988)) is None


def test_under_replication_in_most_samples_is_an_overload() -> None:
    progress = _progress(seconds=12, under_replicated=3.0)
    assert StopRule().verdict(progress) is Verdict.OVERLOADED


def test_a_latency_objective_is_known_at_the_end_only() -> None:
    limits = goal(latency_p99_ms_max=50.0)
    assert StopRule().verdict(_progress(thresholds=limits)) is None
    overloaded = _progress(idle=0.02, thresholds=limits)
    assert StopRule().verdict(overloaded) is Verdict.OVERLOADED


def test_a_trial_without_reports_of_its_tasks_does_not_end_early() -> None:
    progress = progress_of(_slices(_samples(0.9, 10), []), Thresholds())
    assert StopRule().verdict(progress) is None


def test_a_goal_that_allows_no_missing_record_ends_no_trial_early() -> None:
    assert StopRule().verdict(_progress(thresholds=goal(achieved_min=1.0))) is None


def test_partitions_that_were_short_before_the_run_end_no_window() -> None:
    def verdict(at_rest: float) -> Verdict | None:
        facts = ClusterFacts(under_replicated_at_rest={2: at_rest})
        slices = replace(_slices(_samples(0.9, 14, 2.0), _acked(14)), cluster=facts)
        return StopRule().verdict(progress_of(slices, Thresholds()))

    assert verdict(at_rest=0.0) is Verdict.OVERLOADED
    assert verdict(at_rest=2.0) is Verdict.SUSTAINED


def test_a_cluster_without_metrics_ends_its_windows_early() -> None:
    """Acknowledged records and the state of replicas are sufficient."""

    def verdict(seconds: int, share: float) -> Verdict | None:
        samples = [
            BrokerSample(broker, START_S + second, {"under_replicated_partitions": 0.0})
            for second in range(seconds + 1)
            for broker in (1, 2)
        ]
        slices = replace(_slices(samples, _acked(seconds, share)), cluster=ClusterFacts(True))
        return StopRule().verdict(progress_of(slices, Thresholds()))

    assert verdict(10, share=0.5) is Verdict.OVERLOADED
    assert verdict(10, share=1.0) is Verdict.SUSTAINED
    assert verdict(10, share=0.988) is None


def test_changes_of_brokers_count_at_their_time_although_one_missed_a_sample() -> None:
    """Two brokers change their ISR at once, twice: in 2 of 11 samples, as the window counts."""

    def changed(each: BrokerSample) -> BrokerSample:
        shrinks = float((each.at_s >= START_S + 5) + (each.at_s >= START_S + 8))
        return replace(each, values=dict(each.values) | {"isr_shrinks": shrinks})

    taken = [
        changed(each)
        for each in _samples(0.9, 10)
        if (each.broker_id, each.at_s) != (1, START_S + 3)
    ]
    found, _ = progress_of(_slices(taken, _acked(10)), Thresholds()).shares["isr"]
    assert sum(found) / len(found) == any_isr_changed_share(taken, (1, 2), START_S, START_S + 10)
    assert sum(found) == 2


def test_a_queue_that_is_not_read_is_not_an_empty_queue() -> None:
    thresholds = goal(request_queue_max=10.0)
    taken = [
        replace(each, values=dict(each.values) | {"request_queue_size": 0.0})
        if each.broker_id == 1
        else each
        for each in _samples(0.9, 12)
    ]
    progress = progress_of(_slices(taken, _acked(12)), thresholds)
    assert progress.shares["request_queue/1"] == ([False] * 12, 0.0)
    assert progress.shares["request_queue/2"] == ([], 0.0)
    assert StopRule(sustained_from=0.0).verdict(progress) is None
