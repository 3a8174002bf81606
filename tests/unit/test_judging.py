from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.judging.indicators import achieved_share, overload_reasons
from metrics.judging.thresholds import Thresholds
from metrics.judging.verdict import Evidence, judge, judge_all, utilization
from metrics.trial.judgement import Reason
from metrics.windows.resource import Resource
from search.model import Verdict
from tests.support.evidence import broker, client, rules, with_one

GOAL = Thresholds()
BROKERS = (broker(1), broker(2), broker(3))


def test_sustained_says_its_numbers() -> None:
    judgement = judge(client(), with_one(handler_idle=0.41), GOAL)
    assert judgement.verdict is Verdict.SUSTAINED
    assert rules(judgement) == {"request_handler_idle", "isr", "achieved"}
    idle = judgement.reasons[0]
    assert idle.text == "least idle request handlers 0.41 on broker 2, not below 0.20"
    assert "100.0% of the offered records" in judgement.reasons[2].text
    assert judgement.limited_by is None


@pytest.mark.parametrize(
    ("changes", "rule", "words"),
    [
        ({"handler_idle": 0.19}, "request_handler_idle", "broker 2: request handlers idle 0.19"),
        ({"isr_changed_share": 0.51}, "isr", "broker 2: ISR changes or under-replicated"),
    ],
)
def test_one_broker_is_enough(changes: dict[str, float], rule: str, words: str) -> None:
    judgement = judge(client(), with_one(**changes), GOAL)
    assert judgement.verdict is Verdict.OVERLOADED
    (reason,) = judgement.reasons
    assert reason.indicator == rule
    assert reason.broker_id == 2
    assert words in reason.text
    assert reason.value == next(iter(changes.values()))


@pytest.mark.parametrize("changes", [{"handler_idle": 0.20}, {"isr_changed_share": 0.5}])
def test_exactly_at_the_threshold_is_sustained(changes: dict[str, float]) -> None:
    assert judge(client(), with_one(**changes), GOAL).verdict is Verdict.SUSTAINED


@pytest.mark.parametrize(
    ("acked", "verdict"), [(9_900, Verdict.SUSTAINED), (9_899, Verdict.OVERLOADED)]
)
def test_a_shortfall_while_the_generator_had_capacity_is_an_overload(
    acked: int, verdict: Verdict
) -> None:
    judgement = judge(client(acked_records=acked), BROKERS, GOAL)
    assert judgement.verdict is verdict
    if verdict is Verdict.OVERLOADED:
        assert rules(judgement) == {"achieved"}
        assert "9899 of 10000" in judgement.reasons[0].text
        assert judgement.limited_by is Resource.UNKNOWN


def test_brokers_reasons_come_before_the_shortfall_worst_first() -> None:
    brokers = (broker(1, handler_idle=0.15), broker(2, handler_idle=0.05), broker(3))
    reasons = overload_reasons(client(acked_records=5_000), brokers, GOAL)
    assert [(r.indicator, r.broker_id) for r in reasons] == [
        ("request_handler_idle", 2),
        ("request_handler_idle", 1),
        ("achieved", None),
    ]


@pytest.mark.parametrize(
    ("goal", "changes", "rule"),
    [
        (Thresholds(network_idle_min=0.3), {"network_idle": 0.29}, "network_idle"),
        (Thresholds(request_queue_max=400), {"request_queue_max": 401.0}, "request_queue"),
        (
            Thresholds(request_queue_share_max=0.8, queued_max_requests={2: 500.0}),
            {"request_queue_max": 401.0},
            "request_queue",
        ),
    ],
)
def test_optional_broker_rules_are_off_until_they_have_a_threshold(
    goal: Thresholds, changes: dict[str, float], rule: str
) -> None:
    brokers = with_one(**changes)
    assert judge(client(), brokers, GOAL).verdict is Verdict.SUSTAINED
    assert rules(judge(client(), brokers, goal)) == {rule}


def test_the_latency_objective_is_off_until_it_has_a_threshold() -> None:
    goal = Thresholds(latency_p99_ms_max=7.9, latency_p50_ms_max=2.0, latency_p999_ms_max=15.0)
    seen = client(latency_p999_ms=15.1)
    assert judge(seen, BROKERS, GOAL).verdict is Verdict.SUSTAINED
    assert rules(judge(seen, BROKERS, goal)) == {"latency_p99", "latency_p999"}
    assert rules(judge(client(), BROKERS, goal)) == {"latency_p99"}  # no quantile is no evidence


@pytest.mark.parametrize(
    ("waiting", "limit"),
    [(400.0, None), (400.1, 400.0), (300.0, 250.0)],
)
def test_a_queue_is_near_full_by_its_own_brokers_size(waiting: float, limit: float | None) -> None:
    goal = Thresholds(
        request_queue_share_max=0.8,
        request_queue_max=250.0 if limit == 250.0 else None,
        queued_max_requests={1: 5_000.0, 2: 500.0, 3: 5_000.0},
    )
    judgement = judge(client(), with_one(request_queue_max=waiting), goal)
    if limit is None:
        assert judgement.verdict is Verdict.SUSTAINED
    else:
        (reason,) = judgement.reasons
        assert (reason.broker_id, reason.threshold) == (2, limit)
        assert "of 500 that the queue holds" in reason.text


@pytest.mark.parametrize(
    ("growth", "verdict"), [(10.0, Verdict.SUSTAINED), (10.1, Verdict.OVERLOADED)]
)
def test_a_consumer_group_that_falls_behind(growth: float, verdict: Verdict) -> None:
    goal = Thresholds(consumer_lag_growth_max=0.01)  # of 1,000 records/s offered
    lag = {"a": -500.0, "b": growth}
    assert judge(client(), BROKERS, GOAL, lag_growth_per_s=lag).verdict is Verdict.SUSTAINED
    judgement = judge(client(), BROKERS, goal, lag_growth_per_s=lag)
    assert judgement.verdict is verdict
    if verdict is Verdict.OVERLOADED:
        assert rules(judgement) == {"consumer_lag"}
        assert "consumer group b fell behind by 10 records/s, 1.0%" in judgement.reasons[0].text


def test_several_goals_judge_one_trial() -> None:
    evidence = Evidence(client(), brokers=with_one(handler_idle=0.3), lag_growth_per_s={"g": 50.0})
    goals = {
        "tolerant": Thresholds(request_handler_idle_min=0.1),
        "strict": Thresholds(request_handler_idle_min=0.4),
        "fast": Thresholds(latency_p99_ms_max=5.0),
        "current": Thresholds(consumer_lag_growth_max=0.0),
    }
    judged = judge_all(evidence, goals)
    assert {name: each.verdict.value for name, each in judged.items()} == {
        "tolerant": "SUSTAINED",
        "strict": "OVERLOADED",
        "fast": "OVERLOADED",
        "current": "OVERLOADED",
    }
    assert [rules(judged[name]) for name in ("strict", "fast", "current")] == [
        {"request_handler_idle"},
        {"latency_p99"},
        {"consumer_lag"},
    ]


def test_what_makes_a_trial_no_answer_does_so_for_every_goal() -> None:
    moved = Evidence(client(errors={"NotLeaderForPartitionError": 3}), brokers=BROKERS)
    short = replace(moved, client=client(), growth={0: 1})
    for evidence in (moved, short):
        judged = judge_all(evidence, {"a": GOAL, "b": Thresholds(request_handler_idle_min=0.9)})
        assert {each.verdict for each in judged.values()} == {Verdict.INVALID}


def test_a_trial_that_was_not_made_says_only_why() -> None:
    refusal = Reason("not_at_rest", "broker 2: request handlers idle 0.10", 1.0, 0.0)
    judgement = judge_all(Evidence.missing(4, 5.0, refusal), {"a": GOAL})["a"]
    assert judgement.verdict is Verdict.INVALID
    assert judgement.reasons == (refusal,)


def test_a_trial_that_was_ended_keeps_its_other_reasons() -> None:
    refusal = Reason("guard", "the disk of broker 1 is full", 1.0, 0.0)
    evidence = Evidence(client(), brokers=with_one(samples_missed=9), refusals=(refusal,))
    judgement = judge_all(evidence, {"a": GOAL})["a"]
    assert [each.indicator for each in judgement.reasons] == ["guard", "metrics_incomplete"]


def test_utilization_is_one_at_the_threshold() -> None:
    used = utilization(
        client(acked_records=9_900), with_one(handler_idle=0.2, isr_changed_share=0.25), GOAL
    )
    assert used == pytest.approx({"request_handler_idle": 1.0, "isr": 0.5, "achieved": 1.0})


def test_utilization_has_nothing_without_evidence_or_threshold() -> None:
    unknown = broker(handler_idle=None, isr_changed_share=None)
    strict = Thresholds(achieved_min=1.0, isr_changed_share_max=0.0)
    assert utilization(client(), [unknown], strict) == {}


def test_idle_above_one_and_more_than_offered_use_nothing() -> None:
    used = utilization(client(acked_records=10_100), [broker(handler_idle=1.02)], GOAL)
    assert used["request_handler_idle"] == 0.0
    assert used["achieved"] == 0.0


def test_achieved_of_nothing_is_unknown() -> None:
    assert achieved_share(client(offered_records=0)) is None


shares = st.floats(0.0, 1.2)


@given(
    st.lists(st.tuples(shares, st.floats(0, 1)), min_size=1, max_size=5),
    st.integers(0, 11_000),
    st.integers(0, 10_000),
    shares,
)
def test_a_verdict_always_has_reasons_and_agrees_with_utilization(
    brokers: list[tuple[float, float]], acked: int, unsent: int, busy: float
) -> None:
    windows = [
        broker(i, handler_idle=idle, isr_changed_share=isr) for i, (idle, isr) in enumerate(brokers)
    ]
    account = client(acked_records=acked, unsent_own_records=unsent, loop_busy=busy)
    judgement = judge(account, windows, GOAL)
    assert judgement.reasons
    above = [name for name, used in judgement.utilization.items() if used > 1 + 1e-9]
    if judgement.verdict is Verdict.SUSTAINED:
        assert not above
    if judgement.verdict is Verdict.OVERLOADED:
        assert {r.indicator for r in judgement.reasons} >= set(above)
        assert judgement.limited_by is not None
        assert judgement.attribution
