"""A running trial as slices, and the decisions of the stop rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from metrics.judging.running import Slices
from metrics.judging.thresholds import Thresholds
from metrics.judging.verdict import progress_of
from metrics.sources.beans import HANDLER_IDLE_NS, NETWORK_WAIT_NS, UPTIME_MS
from metrics.sources.sample import BrokerSample
from metrics.trial.evidence import ClusterFacts
from metrics.windows.broker import Span, any_isr_changed_share
from search.early_stop import StopRule
from search.model import Verdict
from tests.support.evidence import goal, sample

S, O = Verdict.SUSTAINED, Verdict.OVERLOADED  # noqa: E741
START_S, LENGTH_S, OFFERED_PER_S = 100.0, 20.0, 1_000.0
BLIND = ClusterFacts(is_blind=True)


def running(
    idle: float = 0.9,
    seconds: int = 10,
    share: float = 1.0,
    under_replicated: float = 0.0,
    extra: Callable[[int, int], Mapping[str, float]] = lambda _broker_id, _second: {},
    cluster: ClusterFacts = ClusterFacts(),  # noqa: B008
    **changes: Any,
) -> Slices:
    """The first seconds of 20 s at 1,000 records/s, with two brokers.

    Args:
        share: acknowledged share of the offered records.
        under_replicated: partitions of broker 2.
        extra: further readings of (broker, second).
        changes: fields of the slices.
    """

    def values(broker_id: int, second: int) -> dict[str, float]:
        replicas = {"under_replicated_partitions": under_replicated if broker_id == 2 else 0.0}
        if cluster.is_blind:
            return replicas
        counters = {UPTIME_MS: 1_000.0 * (second + 1), HANDLER_IDLE_NS: (second + 1) * idle * 1e9}
        return {**replicas, **counters, "isr_shrinks": 0.0, **extra(broker_id, second)}

    samples = [
        BrokerSample(broker_id, START_S + second, values(broker_id, second))
        for second in range(-1, seconds + 1)
        for broker_id in (1, 2)
    ]
    acked = [(float(s), int(OFFERED_PER_S * share * s)) for s in range(1, seconds + 1)]
    window = (START_S, START_S + LENGTH_S)
    whole = Slices(samples, (1, 2), window, 1.0, acked, OFFERED_PER_S, cluster)
    return replace(whole, **changes)


def threads(idle: float) -> Slices:
    """Broker 2 has a second network thread with this idle fraction, beside those with 0.95."""

    def waited(broker_id: int, second: int) -> dict[str, float]:
        shares = {1: idle, 2: 0.95} if broker_id == 2 else {1: 0.95}
        ns = 1e9 * (second + 1)
        return {f"{NETWORK_WAIT_NS}:PLAINTEXT/{n}": ns * each for n, each in shares.items()}

    return running(extra=waited)


def queue(requests: float) -> Slices:
    """Broker 2 has so many waiting requests once; the size of the other queue is unknown."""

    def waiting(broker_id: int, second: int) -> dict[str, float]:
        return {"request_queue_size": requests if second == 4 else 0.0} if broker_id == 2 else {}

    facts = ClusterFacts(queued_max_requests={2: 500.0})
    return running(seconds=14, extra=waiting, cluster=facts)


def at_rest(under_replicated: float) -> Slices:
    facts = ClusterFacts(under_replicated_at_rest={2: under_replicated})
    return running(seconds=14, under_replicated=2.0, cluster=facts)


THREADS, QUEUE = goal(network_idle_min=0.5), goal(request_queue_share_max=0.8)
LATENCY, NO_LAG = goal(latency_p99_ms_max=50.0), goal(consumer_lag_growth_max=None)


@pytest.mark.parametrize(
    ("slices", "thresholds", "verdict"),
    [
        (running(0.9), goal(), S),
        (running(0.205), goal(), None),
        (running(0.02), goal(), O),
        # The busiest network thread ends a trial by its own limit.
        (threads(0.9), THREADS, S),
        (threads(0.5), THREADS, None),
        (threads(0.2), THREADS, O),
        # Each broker has its own queue; a later sample may still be beyond the limit.
        (queue(401.0), QUEUE, O),
        (queue(400.0), QUEUE, None),
        # A shortfall that grows is an overload, and a small one keeps the trial going.
        (running(share=0.9), goal(), O),
        (running(share=0.988), goal(), None),
        (running(acked=[]), goal(), None),  # tasks have not reported
        (running(), goal(achieved_min=1.0), None),
        # Partitions that lacked replicas before the run do not count.
        (running(seconds=12, under_replicated=3.0), goal(), O),
        (at_rest(0.0), goal(), O),
        (at_rest(2.0), goal(), S),
        # A latency is known at the end only.
        (running(), LATENCY, None),
        (running(0.02), LATENCY, O),
        # A cluster without metrics is judged by the ISR and the backlog; groups read until the end.
        (running(cluster=BLIND), goal(), S),
        (running(share=0.5, cluster=BLIND), goal(), O),
        (running(share=0.9, seconds=12, cluster=BLIND), goal(), O),
        (running(share=0.988, cluster=BLIND), goal(), None),
        (running(under_replicated=3.0, seconds=12, cluster=BLIND), goal(), O),
        (replace(running(cluster=BLIND), cluster=ClusterFacts()), goal(), None),  # no metrics
        (running(cluster=BLIND, groups=1), goal(), None),
        (running(cluster=BLIND, groups=1), NO_LAG, S),
    ],
)  # fmt: skip
def test_a_running_trial_ends_where_its_verdict_is_certain(
    slices: Slices, thresholds: Thresholds, verdict: Verdict | None
) -> None:
    assert StopRule().verdict(progress_of(slices, thresholds)) is verdict


def test_slices_lie_between_the_samples_of_the_window() -> None:
    progress = progress_of(running(idle=0.6), goal())
    assert progress.planned == 20
    assert progress.means["request_handler_idle/1"] == pytest.approx([0.5] * 10)
    assert progress.shares["isr"] == ([False] * 11, 0.5)
    assert progress.stocks["achieved"] == [0.0] * 10
    waits = progress_of(threads(0.2), THREADS).means["network_idle/2"]
    assert waits == pytest.approx([0.8 / 0.5] * 10)
    assert [name for name in progress_of(queue(0.0), QUEUE).shares if "queue" in name] == [
        "request_queue/2"
    ]
    blind = progress_of(running(cluster=BLIND), goal())
    assert (blind.means, set(blind.shares), set(blind.stocks)) == ({}, {"isr"}, {"achieved"})


def test_changes_of_brokers_count_at_their_time_although_one_missed_a_sample() -> None:
    """Two brokers change their ISR at once, twice: in 2 of 11 samples, as the window counts."""
    whole = running(
        extra=lambda _, second: {"isr_shrinks": float((second >= 5) + (second >= 8))}
    ).samples
    taken = [each for each in whole if (each.broker_id, each.at_s) != (1, START_S + 3)]
    found, _ = progress_of(running(samples=taken), goal()).shares["isr"]
    assert sum(found) / len(found) == any_isr_changed_share(taken, (1, 2), START_S, START_S + 10)
    assert sum(found) == 2


def test_a_queue_that_is_not_read_is_not_an_empty_queue() -> None:
    read = running(
        seconds=12, extra=lambda broker_id, _: {"request_queue_size": 0.0} if broker_id == 1 else {}
    )
    progress = progress_of(read, goal(request_queue_max=10.0))
    assert progress.shares["request_queue/1"] == ([False] * 12, 0.0)
    assert progress.shares["request_queue/2"] == ([], 0.0)
    assert StopRule(sustained_from=0.0).verdict(progress) is None


def test_a_slice_weighs_by_its_requests_and_a_slow_broker_ends_the_window() -> None:
    """The mean over the slices is then the mean of the window, which is judged at the end."""

    def response_times(*requests: tuple[int, float]) -> tuple[list[float], list[BrokerSample]]:
        """Shares of the limit in each second's slice, from (requests, their mean time [ms])."""
        count, sum_ms, taken = 0.0, 0.0, []
        for second, (more, each_ms) in enumerate([(0, 0.0), *requests]):
            count, sum_ms = count + more, sum_ms + more * each_ms
            mean = sum_ms / max(1.0, count)
            values = {"produce_total_ms_count": count, "produce_total_ms_mean": mean}
            taken.append(sample(float(second), values))
        slices = Slices(taken, (1,), (taken[0].at_s, taken[0].at_s + 20), 1.0, [], OFFERED_PER_S)
        progress = progress_of(slices, goal(produce_response_ms_max=10))
        return list(progress.means["produce_response_time/1"]), taken

    means, taken = response_times(*[(100, 2.0), (300, 20.0)] * 5)
    assert Span(taken).mean("produce_total_ms") == pytest.approx(15.5)
    assert sum(means) / len(means) == pytest.approx(1.55)
    slow, _ = response_times(*[(200, 80.0)] * 11)
    whole = progress_of(running(), goal())
    only = replace(whole, means={"slow": slow[:10]}, shares={}, stocks={})
    assert StopRule().verdict(only) is O
