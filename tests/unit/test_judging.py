from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.judging import verdict as verdict_module
from metrics.judging.indicators import Indicator, RequestHandlerIdle
from metrics.judging.slices import Slices
from metrics.judging.thresholds import Indicators, Thresholds
from metrics.judging.verdict import judge_all, progress_of
from metrics.sources.beans import HANDLER_IDLE_NS
from metrics.sources.sample import BrokerSample
from metrics.trial.client import ClientWindow
from metrics.trial.consumption import GroupCounts, GroupWindow
from metrics.trial.evidence import ClusterFacts, Evidence
from metrics.trial.judgement import Reason
from metrics.windows.resource import Resource
from search.early_stop import Progress, StopRule
from search.model import Verdict
from tests.support.evidence import START_S, broker, client, evidence, goal, judged, rules, with_one


def test_a_sustained_trial_has_its_numbers_in_the_reason() -> None:
    judgement = judged(brokers=with_one(handler_idle=0.41))
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
        ({"isr_changed_share": 0.51}, "isr", "ISR changes or under-replicated"),
        (
            {"isr_changed_share": 0.51, "isr_shrinks": 3.0, "isr_expands": 2.0},
            "isr",
            "3 shrinks, 2 expands, up to 0 partitions",
        ),
    ],
)
def test_one_broker_is_enough(changes: dict[str, float], rule: str, words: str) -> None:
    judgement = judged(brokers=with_one(**changes))
    assert judgement.verdict is Verdict.OVERLOADED
    (reason,) = judgement.reasons
    assert reason.indicator == rule
    assert reason.broker_id == 2
    assert words in reason.text
    assert reason.value == next(iter(changes.values()))


@pytest.mark.parametrize("changes", [{"handler_idle": 0.20}, {"isr_changed_share": 0.5}])
def test_exactly_at_the_threshold_is_sustained(changes: dict[str, float]) -> None:
    assert judged(brokers=with_one(**changes)).verdict is Verdict.SUSTAINED


@pytest.mark.parametrize(
    ("acked", "verdict"), [(9_900, Verdict.SUSTAINED), (9_899, Verdict.OVERLOADED)]
)
def test_a_shortfall_while_the_generator_had_capacity_is_an_overload(
    acked: int, verdict: Verdict
) -> None:
    judgement = judged(client(acked_records=acked))
    assert judgement.verdict is verdict
    if verdict is Verdict.OVERLOADED:
        assert rules(judgement) == {"achieved"}
        assert "9899 of 10000" in judgement.reasons[0].text
        assert judgement.limited_by is Resource.UNKNOWN


def test_an_unstable_isr_of_several_brokers_names_no_single_broker() -> None:
    judgement = judged(brokers=[broker(isr_changed_share=None)], any_isr_changed_share=0.9)
    (reason,) = judgement.reasons
    assert (reason.indicator, reason.value, reason.broker_id) == ("isr", 0.9, None)


def test_brokers_reasons_come_before_the_shortfall_worst_first() -> None:
    brokers = (broker(1, handler_idle=0.15), broker(2, handler_idle=0.05), broker(3))
    judgement = judged(client(acked_records=5_000), brokers)
    assert judgement.verdict is Verdict.OVERLOADED
    assert [(r.indicator, r.broker_id) for r in judgement.reasons] == [
        ("request_handler_idle", 2),
        ("request_handler_idle", 1),
        ("achieved", None),
    ]


@pytest.mark.parametrize(
    ("limits", "changes", "rule"),
    [
        ({"network_idle_min": 0.3}, {"network_idle": 0.29}, "network_idle"),
        ({"request_queue_max": 400}, {"request_queue_max": 401.0}, "request_queue"),
        ({"request_queue_share_max": 0.8}, {"request_queue_max": 401.0}, "request_queue"),
    ],
)
def test_optional_broker_rules_are_off_until_they_have_a_threshold(
    limits: dict[str, float], changes: dict[str, float], rule: str
) -> None:
    brokers, facts = with_one(**changes), ClusterFacts(queued_max_requests={2: 500.0})
    assert judged(brokers=brokers, cluster=facts).verdict is Verdict.SUSTAINED
    assert rules(judged(brokers=brokers, thresholds=goal(**limits), cluster=facts)) == {rule}


def test_the_latency_objective_is_off_until_it_has_a_threshold() -> None:
    limits = goal(latency_p99_ms_max=7.9, latency_p50_ms_max=2.0, latency_p999_ms_max=15.0)
    seen = client(latency_p999_ms=15.1)
    assert judged(seen).verdict is Verdict.SUSTAINED
    assert rules(judged(seen, thresholds=limits)) == {"latency_p99", "latency_p999"}
    assert rules(judged(thresholds=limits)) == {"latency_p99"}  # no quantile is no evidence


@pytest.mark.parametrize(
    ("waiting", "limit"),
    [(400.0, None), (400.1, 400.0), (300.0, 250.0)],
)
def test_a_queue_is_near_full_by_its_own_brokers_size(waiting: float, limit: float | None) -> None:
    limits = goal(request_queue_share_max=0.8, request_queue_max=250.0 if limit == 250.0 else None)
    facts = ClusterFacts(queued_max_requests={1: 5_000.0, 2: 500.0, 3: 5_000.0})
    judgement = judged(None, with_one(request_queue_max=waiting), limits, cluster=facts)
    if limit is None:
        assert judgement.verdict is Verdict.SUSTAINED
    else:
        (reason,) = judgement.reasons
        assert (reason.broker_id, reason.threshold) == (2, limit)
        assert "of 500 that the queue holds" in reason.text


def with_groups(*unread: int) -> ClientWindow:
    """A window of 10 s and 10,000 records, with the number of unread records of each group."""
    groups = [
        GroupWindow(GroupCounts(number, records=10_000 - records))
        for number, records in enumerate(unread)
    ]
    return client(groups=tuple(groups))


@pytest.mark.parametrize(
    ("unread", "growth", "verdict"),
    [(100, 10.0, Verdict.SUSTAINED), (101, 10.1, Verdict.OVERLOADED)],
)
def test_a_consumer_group_that_falls_behind(unread: int, growth: float, verdict: Verdict) -> None:
    # The first one reads its backlog, too.
    seen, limits = with_groups(-5_000, unread), goal(consumer_lag_growth_max=0.01)
    assert evidence(seen).lag_growth_per_s == pytest.approx({"0": -500.0, "1": growth})
    off = judged(seen, thresholds=goal(consumer_lag_growth_max=None))
    assert off.verdict is Verdict.SUSTAINED and "consumer_lag" not in rules(off)
    judgement = judged(seen, thresholds=limits)
    assert judgement.verdict is verdict
    if verdict is Verdict.OVERLOADED:
        assert rules(judgement) == {"consumer_lag"}
        assert "consumer group 1 fell behind by 10 records/s, 1.0%" in judgement.reasons[0].text
    else:
        texts = {reason.indicator: reason.text for reason in judgement.reasons}
        assert "the lag of consumer group 1 grew by 1.0% of the offered" in texts["consumer_lag"]


def test_a_group_that_falls_behind_by_a_tenth_is_an_overload_by_default() -> None:
    assert judged(with_groups(1_000)).verdict is Verdict.OVERLOADED
    assert judged(with_groups(130)).verdict is Verdict.SUSTAINED
    assert judged().verdict is Verdict.SUSTAINED, "without groups the rule gives no reason"


@pytest.mark.parametrize(("unread", "worst"), [((300, 100), 0), ((100, 300), 1)])
def test_the_message_names_the_group_that_fell_behind_most(
    unread: tuple[int, int], worst: int
) -> None:
    reasons = {reason.indicator: reason for reason in judged(with_groups(*unread)).reasons}
    assert reasons["consumer_lag"].value == pytest.approx(0.03)
    assert f"the lag of consumer group {worst} grew by 3.0%" in reasons["consumer_lag"].text


def test_several_goals_judge_one_trial() -> None:
    seen = evidence(with_groups(500), with_one(handler_idle=0.3))
    goals = {
        "tolerant": goal(request_handler_idle_min=0.1),
        "strict": goal(request_handler_idle_min=0.4),
        "fast": goal(latency_p99_ms_max=5.0),
        "current": goal(consumer_lag_growth_max=0.0),
    }
    found = judge_all(seen, goals)
    assert {name: each.verdict.value for name, each in found.items()} == {
        "tolerant": "SUSTAINED",
        "strict": "OVERLOADED",
        "fast": "OVERLOADED",
        "current": "OVERLOADED",
    }
    assert [rules(found[name]) for name in ("strict", "fast", "current")] == [
        {"request_handler_idle"},
        {"latency_p99"},
        {"consumer_lag"},
    ]


def test_a_trial_is_invalid_for_every_goal() -> None:
    moved = evidence(client(errors={"NotLeaderForPartitionError": 3}))
    short = evidence(growth={0: 1})
    for seen in (moved, short):
        found = judge_all(seen, {"a": goal(), "b": goal(request_handler_idle_min=0.9)})
        assert {each.verdict for each in found.values()} == {Verdict.INVALID}


def test_a_trial_that_was_not_made_has_only_that_reason() -> None:
    refusal = Reason("not_at_rest", "broker 2: request handlers idle 0.10", 1.0, 0.0)
    not_made = Evidence(ClientWindow(START_S, START_S), refusals=(refusal,))
    judgement = judge_all(not_made, {"a": goal()})["a"]
    assert judgement.verdict is Verdict.INVALID
    assert judgement.reasons == (refusal,)


def test_a_trial_that_was_ended_keeps_its_other_reasons() -> None:
    refusal = Reason("guard", "the disk of broker 1 is full", 1.0, 0.0)
    judgement = judged(brokers=with_one(samples_missed=9), refusals=(refusal,))
    assert judgement.verdict is Verdict.INVALID
    assert [each.indicator for each in judgement.reasons] == ["guard", "metrics_incomplete"]


def test_only_a_window_that_began_can_end_early() -> None:
    assert "ended_early" in rules(judged(planned_s=20.0))
    assert "ended_early" not in rules(judged(planned_s=10.0))
    never = client(end_s=START_S, task_errors=("task 0 on a: out of memory",))
    assert rules(judged(never, planned_s=20.0)) == {"task_failed"}


def test_utilization_is_one_at_the_threshold() -> None:
    at_it = with_one(handler_idle=0.2, isr_changed_share=0.25)
    used = judged(client(acked_records=9_900), at_it).utilization
    assert used == pytest.approx({"request_handler_idle": 1.0, "isr": 0.5, "achieved": 1.0})


def test_an_indicator_without_evidence_or_threshold_has_no_utilization() -> None:
    unknown = broker(handler_idle=None, isr_changed_share=None)
    strict = goal(achieved_min=1.0, isr_changed_share_max=0.0)
    assert judged(brokers=[unknown], thresholds=strict).utilization == {}


def test_idle_above_one_and_more_than_offered_are_no_utilization() -> None:
    used = judged(client(acked_records=10_100), [broker(handler_idle=1.02)]).utilization
    assert used["request_handler_idle"] == 0.0
    assert used["achieved"] == 0.0


def test_the_achieved_share_of_no_load_is_unknown() -> None:
    assert client(offered_records=0).achieved_share is None


shares = st.floats(0.0, 1.2)


@pytest.mark.computes
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
    judgement = judged(account, windows)
    assert judgement.reasons
    above = [name for name, used in judgement.utilization.items() if used > 1 + 1e-9]
    if judgement.verdict is Verdict.SUSTAINED:
        assert not above
    if judgement.verdict is Verdict.OVERLOADED:
        assert {r.indicator for r in judgement.reasons} >= set(above)
        assert judgement.limited_by is not None
        assert judgement.attribution


class Silent(Indicator):
    """An indicator that is known at the end only."""

    name = "silent"

    def reasons(self, evidence: Evidence, limits: Indicators) -> list[Reason]:
        """Return no reason."""
        return []


def running(cluster: ClusterFacts, under_replicated: float = 0.0, share: float = 1.0) -> Slices:
    """Twelve of twenty seconds at 1,000 records/s, with the acknowledged share."""

    def values(broker_id: int, second: int) -> dict[str, float]:
        replicas = {"under_replicated_partitions": under_replicated if broker_id == 2 else 0.0}
        return replicas if cluster.is_blind else {**replicas, HANDLER_IDLE_NS: 0.9e9 * second}

    samples = [
        BrokerSample(broker_id, START_S + second, values(broker_id, second))
        for second in range(13)
        for broker_id in (1, 2)
    ]
    acked = [(float(second), round(1_000 * share * second)) for second in range(1, 13)]
    return Slices(samples, (1, 2), (START_S, START_S + 20), 1.0, acked, 1_000.0, cluster)


def test_an_indicator_without_early_values_is_known_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slices = running(ClusterFacts())

    def progress() -> Progress:
        return progress_of(slices, Thresholds())

    monkeypatch.setattr(verdict_module, "INDICATORS", [RequestHandlerIdle()])
    assert not progress().known_at_end
    assert StopRule().verdict(progress()) is Verdict.SUSTAINED
    monkeypatch.setattr(verdict_module, "INDICATORS", [RequestHandlerIdle(), Silent()])
    assert progress().known_at_end
    assert list(progress().means) == ["request_handler_idle/1", "request_handler_idle/2"]
    assert StopRule().verdict(progress()) is None
    blind = replace(slices, cluster=ClusterFacts(is_blind=True))
    assert not progress_of(blind, Thresholds()).known_at_end, "a blind cluster is not judged by it"


def test_only_groups_prevent_an_early_sustained_verdict() -> None:
    slices = running(ClusterFacts(is_blind=True))
    assert StopRule().verdict(progress_of(slices, Thresholds())) is Verdict.SUSTAINED
    with_groups = replace(slices, groups=1)
    assert StopRule().verdict(progress_of(with_groups, Thresholds())) is None
    without_lag = goal(consumer_lag_growth_max=None)
    assert StopRule().verdict(progress_of(with_groups, without_lag)) is Verdict.SUSTAINED


@pytest.mark.parametrize(
    ("under_replicated", "share", "verdict"),
    [
        (0.0, 1.0, Verdict.SUSTAINED),
        (3.0, 1.0, Verdict.OVERLOADED),
        (0.0, 0.9, Verdict.OVERLOADED),
        (0.0, 0.988, None),
    ],
)
def test_a_blind_cluster_is_judged_early_by_the_isr_and_the_backlog(
    under_replicated: float, share: float, verdict: Verdict | None
) -> None:
    slices = running(ClusterFacts(is_blind=True), under_replicated, share)
    progress = progress_of(slices, Thresholds())
    assert progress.means == {}
    assert set(progress.shares) == {"isr"}
    assert set(progress.stocks) == {"achieved"}
    assert StopRule().verdict(progress) is verdict
    lacking = replace(slices, cluster=ClusterFacts())
    assert StopRule().verdict(progress_of(lacking, Thresholds())) is None, "metrics are missing"


def test_a_blind_cluster_is_judged_by_its_available_readings() -> None:
    facts = ClusterFacts(is_blind=True)
    whole = broker(1, handler_idle=None, network_idle=None)
    calm = judged(None, [whole], goal(network_idle_min=0.3), cluster=facts)
    assert calm.verdict is Verdict.SUSTAINED
    assert set(calm.utilization) == rules(calm) == {"isr", "achieved"}
    behind = judged(None, [whole, replace(whole, isr_changed_share=0.9)], cluster=facts)
    assert rules(behind) == {"isr"}
    assert behind.attribution == "unknown: the cluster shows no broker metrics"
    assert rules(judged(brokers=[whole])) == {"metrics_incomplete"}
