"""The indicator of the brokers' mean response time to produce requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from metrics.judging.slices import Slices
from metrics.judging.verdict import judge_all, progress_of
from metrics.sources.sample import BrokerSample
from metrics.trial.evidence import ClusterFacts
from metrics.windows.broker import RequestWindow
from metrics.windows.spans import Span
from search.early_stop import StopRule
from search.model import Verdict
from tests.support.evidence import broker, evidence, goal, judged, rules, sample, with_one

SLOW = replace(broker().produce, total_ms=30.0)
NAME = "produce_response_time"


def test_a_broker_that_answers_too_slowly_is_overloaded() -> None:
    judgement = judged(brokers=with_one(produce=SLOW), thresholds=goal(produce_response_ms_max=20))
    assert judgement.verdict is Verdict.OVERLOADED
    (reason,) = [each for each in judgement.reasons if each.indicator == NAME]
    assert reason.text == (
        "broker 2: mean response time of produce requests 30.0 ms, above 20.0 ms"
    )
    assert (reason.value, reason.threshold, reason.broker_id) == (30.0, 20.0, 2)


def test_exactly_at_the_limit_is_sustained() -> None:
    judgement = judged(brokers=with_one(produce=SLOW), thresholds=goal(produce_response_ms_max=30))
    assert judgement.verdict is Verdict.SUSTAINED


def test_only_a_goal_with_a_limit_uses_response_times() -> None:
    seen = evidence(brokers=with_one(produce=SLOW))
    found = judge_all(seen, {"without": goal(), "with": goal(produce_response_ms_max=60)})
    assert {each.verdict for each in found.values()} == {Verdict.SUSTAINED}
    assert NAME not in found["without"].utilization
    assert found["with"].utilization[NAME] == pytest.approx(0.5)


def test_a_trial_without_the_readings_of_its_goal_is_invalid() -> None:
    limits = goal(produce_response_ms_max=20)
    blind = judged(brokers=with_one(produce=RequestWindow()), thresholds=limits)
    assert blind.verdict is Verdict.INVALID and rules(blind) == {"metrics_incomplete"}
    assert "the response time of produce requests (produce_total_ms)" in blind.reasons[0].text
    idle = with_one(produce=RequestWindow(per_s=0.0))
    assert judged(brokers=idle, thresholds=limits).verdict is Verdict.SUSTAINED
    without_threads = judged(
        brokers=with_one(network_idle=None), thresholds=goal(network_idle_min=0.3)
    )
    assert "(network_wait_ns)" in without_threads.reasons[0].text


def test_a_cluster_without_metrics_is_judged_without_response_times() -> None:
    judgement = judged(
        brokers=with_one(produce=RequestWindow(), handler_idle=None),
        thresholds=goal(produce_response_ms_max=20, request_queue_max=5),
        cluster=ClusterFacts(is_blind=True),
    )
    assert judgement.verdict is Verdict.SUSTAINED


def test_a_slice_weighs_by_its_requests() -> None:
    """The mean over the slices is then the mean of the window, which is judged at the end."""
    taken: list[BrokerSample] = []
    count, sum_ms = 0.0, 0.0
    for second, (requests, each_ms) in enumerate([(0, 0.0)] + [(100, 2.0), (300, 20.0)] * 5):
        count, sum_ms = count + requests, sum_ms + requests * each_ms
        values = {"produce_total_ms_count": count, "produce_total_ms_mean": sum_ms / max(1, count)}
        taken.append(sample(float(second), values))
    window = (taken[0].at_s, taken[0].at_s + 20)
    slices = Slices(taken, (1,), window, 1.0, [], 1_000.0)
    progress = progress_of(slices, goal(produce_response_ms_max=10))
    means = progress.means[f"{NAME}/1"]
    exact_ms = Span(taken).mean("produce_total_ms")
    assert exact_ms == pytest.approx(15.5)
    assert sum(means) / len(means) == pytest.approx(1.55)


def test_a_hopelessly_slow_broker_ends_the_window() -> None:
    taken = []
    for second in range(12):
        count = 200.0 * second
        values = {"produce_total_ms_count": count, "produce_total_ms_mean": 80.0}
        taken.append(sample(float(second), values))
    window = (taken[0].at_s, taken[0].at_s + 20)
    slices = Slices(taken, (1,), window, 1.0, [(float(s), 1_000 * s) for s in range(12)], 1_000.0)
    slow = progress_of(slices, goal(produce_response_ms_max=10))
    only = replace(slow, means={f"{NAME}/1": slow.means[f"{NAME}/1"][:10]}, shares={}, stocks={})
    assert StopRule().verdict(only) is Verdict.OVERLOADED
