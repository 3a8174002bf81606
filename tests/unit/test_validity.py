from __future__ import annotations

import math
from dataclasses import replace

import pytest

from metrics.judging.indicators import INDICATORS, Indicator
from metrics.trial.client import ClientWindow
from metrics.trial.clock import ClockChange, ClockOffset, HostClock
from metrics.trial.consumption import GroupCounts, GroupWindow
from metrics.trial.counts import BrokerAccount
from metrics.trial.evidence import ClusterFacts
from metrics.windows.broker import BrokerWindow, RequestWindow
from metrics.windows.resource import Resource
from search.model import Verdict
from tests.support.evidence import broker, client, goal, judged, rules, with_one

BROKERS = (broker(1), broker(2), broker(3))

INVALID: dict[str, tuple[ClientWindow, tuple[BrokerWindow, ...]]] = {
    "task_failed": (client(task_errors=("task 0 on a: out of memory",)), BROKERS),
    "metrics_incomplete": (client(), with_one(samples_missed=3)),
    "metrics_contradictory": (client(), with_one(contradiction="broker 2 restarted")),
    "leaders_moved": (client(errors={"NotLeaderForPartitionError": 3}), BROKERS),
    "unexpected_errors": (client(errors={"ConnectionClosed": 3}), BROKERS),
    "controller_changed": (client(), with_one(controller_elections=1.0)),
    "stood_still": (client(), with_one(standstill_s=0.51)),
    "clocks_apart": (client(clocks=(HostClock("far", ClockOffset(-0.27, 0.01)),)), BROKERS),
    "clock_changed": (client(clock_changes=(ClockChange("far", 0.11, 0.005),)), BROKERS),
    "throttled": (client(throttle_ms=12), BROKERS),
    "generator_limited": (client(acked_records=9_000, unsent_own_records=500), BROKERS),
}


@pytest.mark.parametrize("rule", INVALID)
def test_each_cause_makes_a_trial_invalid(rule: str) -> None:
    judgement = judged(*INVALID[rule])
    assert judgement.verdict is Verdict.INVALID
    assert rules(judgement) == {rule}
    assert judgement.limited_by is None


@pytest.mark.parametrize("rule", INVALID)
def test_invalid_comes_before_overloaded(rule: str) -> None:
    account, brokers = INVALID[rule]
    overloaded = (*brokers, broker(4, handler_idle=0.01, isr_changed_share=1.0))
    assert judged(account, overloaded).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"unsent_own_records": 500}, Verdict.INVALID),  # half of the missing are its own
        ({"unsent_own_records": 499}, Verdict.OVERLOADED),
        ({"loop_busy": 0.95}, Verdict.INVALID),
        ({"loop_busy": 0.94}, Verdict.OVERLOADED),
    ],
)
def test_a_shortfall_belongs_to_the_brokers_or_to_the_generator(
    changes: dict[str, float], verdict: Verdict
) -> None:
    assert judged(client(acked_records=9_000, **changes)).verdict is verdict


@pytest.mark.parametrize(
    ("clock", "verdict"),
    [
        (ClockOffset(0.27, 0.01), Verdict.INVALID),
        (ClockOffset(0.27, 0.03), Verdict.SUSTAINED),  # it may be within
        (ClockOffset(0.25, 0.0), Verdict.SUSTAINED),
    ],
)
def test_a_clock_counts_when_its_offset_exceeds_the_error(
    clock: ClockOffset, verdict: Verdict
) -> None:
    clocks = (HostClock("near", ClockOffset(0.001, 0.001)), HostClock("far", clock))
    judgement = judged(client(clocks=clocks))
    assert judgement.verdict is verdict
    if verdict is Verdict.INVALID:
        (reason,) = judgement.reasons
        assert "executor far was 0.270 s ahead of the driver's (± 0.010 s)" in reason.text


@pytest.mark.parametrize(
    ("gained_s", "error_s", "verdict"),
    [
        (0.11, 0.005, Verdict.INVALID),
        (-0.11, 0.005, Verdict.INVALID),
        (0.11, 0.02, Verdict.SUSTAINED),  # it may be within
        (0.09, 0.0, Verdict.SUSTAINED),
    ],
)
def test_a_clock_that_gained_or_lost_more_than_a_hundredth_of_the_window_counts(
    gained_s: float, error_s: float, verdict: Verdict
) -> None:
    changes = (ClockChange("near", 0.001, 0.001), ClockChange("far", gained_s, error_s))
    judgement = judged(client(clock_changes=changes))
    assert client().duration_s == 10.0
    assert judgement.verdict is verdict
    if verdict is Verdict.INVALID:
        (reason,) = judgement.reasons
        verb = "gained" if gained_s > 0 else "lost"
        assert f"executor far {verb} 0.110 s on the driver's (± 0.005 s)" in reason.text
        assert reason.value == pytest.approx(0.105)
        assert reason.threshold == pytest.approx(0.1)


def test_a_clock_that_is_far_off_has_one_reason() -> None:
    set_ahead = client(
        clocks=(HostClock("far", ClockOffset(1.3, 0.01)),),
        clock_changes=(ClockChange("far", 1.3, 0.01),),
    )
    assert rules(judged(set_ahead)) == {"clocks_apart"}


@pytest.mark.parametrize(("limit_s", "verdict"), [(1.1, "SUSTAINED"), (1.0, "INVALID")])
def test_the_goal_limits_how_long_a_broker_may_stand_still(limit_s: float, verdict: str) -> None:
    seen = judged(brokers=with_one(standstill_s=1.05), thresholds=goal(standstill_s_max=limit_s))
    assert seen.verdict.value == verdict
    if verdict == "INVALID":
        assert "broker 2 stood still for 1.1 s or more" in seen.reasons[0].text
        assert seen.reasons[0].broker_id == 2


def test_all_nodes_report_the_same_election() -> None:
    nodes = with_one(controller_elections=2.0)
    controllers = (broker(100, controller_elections=3.0),)
    (reason,) = judged(brokers=nodes, controllers=controllers).reasons
    assert "node 100 reports rose by 3" in reason.text


def test_records_that_the_generator_held_up_are_a_part_of_those_that_are_missing() -> None:
    """More of them wait at the window's end where some were due before it."""
    (reason,) = judged(client(acked_records=9_000, unsent_own_records=3_500)).reasons
    assert "1000 of 1000 missing records were due and unsent" in reason.text
    assert reason.value == 1.0


def test_a_busy_generator_without_a_shortfall_is_fine() -> None:
    account = client(loop_busy=0.99, unsent_own_records=50)
    assert judged(account).verdict is Verdict.SUSTAINED


@pytest.mark.parametrize("error", ["RequestTimedOutError", "Unacknowledged"])
def test_timeouts_are_judged_by_the_shortfall(error: str) -> None:
    assert judged(client(errors={error: 5_000})).verdict is Verdict.SUSTAINED
    short = client(errors={error: 5_000}, acked_records=5_000)
    assert short.counts.failed_total == 5_000
    assert judged(short).verdict is Verdict.OVERLOADED


@pytest.mark.parametrize(
    "changes",
    [
        {"samples_missed": 3},
        {"edge_gap_s": 2.1},
        {"handler_idle": None},
        {"start_s": None, "handler_idle": None, "samples_missed": 10},
    ],
)
def test_missing_metrics_make_a_trial_invalid(changes: dict[str, float | None]) -> None:
    judgement = judged(brokers=with_one(**changes))
    assert judgement.verdict is Verdict.INVALID
    assert [(r.indicator, r.broker_id) for r in judgement.reasons] == [("metrics_incomplete", 2)]


@pytest.mark.parametrize("changes", [{"samples_missed": 8}, {"edge_gap_s": 9.0}, {"start_s": None}])
def test_an_overload_that_clients_see_needs_no_samples_where_the_cluster_shows_no_metrics(
    changes: dict[str, float | None],
) -> None:
    """Overloaded brokers delay the answers of the Admin API, too, which are the only samples."""
    blind, brokers = ClusterFacts(is_blind=True), with_one(handler_idle=None, **changes)
    short, late = client(acked_records=5_000), client(latency_p99_ms=400.0)
    overloaded = judged(short, brokers, cluster=blind)
    assert overloaded.verdict is Verdict.OVERLOADED
    assert rules(overloaded) == {"achieved"}
    assert judged(late, brokers, goal(latency_p99_ms_max=300.0), cluster=blind).verdict is (
        Verdict.OVERLOADED
    )
    for seen, facts in ((client(), blind), (late, blind), (short, ClusterFacts())):
        judgement = judged(seen, brokers, cluster=facts)
        assert judgement.verdict is Verdict.INVALID
        assert "metrics_incomplete" in rules(judgement)


@pytest.mark.parametrize("changes", [{"samples_missed": 1}, {"edge_gap_s": 2.0}])
def test_a_few_missing_samples_are_tolerated(changes: dict[str, float]) -> None:
    assert judged(brokers=with_one(**changes)).verdict is Verdict.SUSTAINED


def test_a_trial_without_brokers_or_load_is_invalid() -> None:
    assert judged(brokers=()).verdict is Verdict.INVALID
    idle = client(offered_records=0, acked_records=0, latency_p99_ms=math.nan)
    assert rules(judged(idle)) == {"generator_limited"}


def test_moved_leaders_and_fenced_brokers_make_a_trial_invalid() -> None:
    moved = judged(moved_leaders={2: 3})
    assert [(r.indicator, r.broker_id, r.value) for r in moved.reasons] == [
        ("leaders_moved", 2, 3.0)
    ]
    others = judged(brokers=with_one(leader_partitions_min=9.0), moved_leaders={})
    assert others.verdict is Verdict.SUSTAINED, "partitions of others moved"
    controller = BrokerWindow(100, 1.0, 2.0, 1.0, 10, 0, 0.5, fenced_brokers_max=1.0)
    assert rules(judged(controllers=(controller,))) == {"broker_fenced"}
    calm = replace(controller, fenced_brokers_max=0.0)
    assert judged(controllers=(calm,)).verdict is Verdict.SUSTAINED


LOST = BrokerAccount(requests=20, silent_s=1.0, waiting_connections=4, missing_records=900)
REACHED = BrokerAccount(requests=900, silent_s=0.2, waiting_connections=1, missing_records=60)


def _unreachable(
    brokers: tuple[BrokerWindow, ...] = BROKERS, **accounts: BrokerAccount
) -> tuple[Verdict, set[int | None]]:
    """The verdict on a trial that lacks 960 of 10,000 records, and the brokers out of reach."""
    by_broker = {1: REACHED, 2: LOST, 3: BrokerAccount()}
    by_broker |= {int(name.removeprefix("of_")): each for name, each in accounts.items()}
    judgement = judged(client(acked_records=9_040, by_broker=by_broker), brokers)
    rule = "unreachable"
    return judgement.verdict, {r.broker_id for r in judgement.reasons if r.indicator == rule}


def test_a_broker_that_never_got_the_missing_records_is_out_of_reach() -> None:
    assert _unreachable() == (Verdict.INVALID, {2})
    assert _unreachable(of_1=LOST) == (Verdict.INVALID, {1, 2})
    text = (
        judged(client(acked_records=9_040, by_broker={1: REACHED, 2: LOST}), BROKERS)
        .reasons[0]
        .text
    )
    assert text.startswith("executors do not reach broker 2: it answered nothing for 1.0 s while 4")
    assert "900 records that were due for it by the window's end are missing" in text


@pytest.mark.parametrize(
    ("brokers", "accounts"),
    [
        (with_one(handler_idle=0.19), {}),  # busy
        (with_one(produce_delayed_max=4.0), {}),  # waits for its followers
        (with_one(samples_missed=1), {}),  # or may have, as no sample shows it
        (with_one(interval_s=1.1), {}),
        (BROKERS, {"of_2": replace(LOST, silent_s=0.99)}),  # slow
        (BROKERS, {"of_2": replace(LOST, missing_records=859)}),  # others miss records, too
        (BROKERS, {"of_1": LOST, "of_3": LOST}),  # shared by all
    ],
)
def test_any_other_shortfall_stays_an_overload(
    brokers: tuple[BrokerWindow, ...], accounts: dict[str, BrokerAccount]
) -> None:
    assert _unreachable(brokers, **accounts) == (Verdict.OVERLOADED, set())


def test_silence_without_a_shortfall_does_not_affect_the_verdict() -> None:
    by_broker = {1: REACHED, 2: replace(LOST, missing_records=0)}
    assert judged(client(by_broker=by_broker)).verdict is Verdict.SUSTAINED


@pytest.mark.parametrize(
    ("allowed_ms", "requests", "verdict"),
    [
        (0.0, 100, Verdict.INVALID),
        (1.9, 100, Verdict.INVALID),
        (2.0, 100, Verdict.SUSTAINED),
        (2.0, None, Verdict.INVALID),  # a library reports no mean
    ],
)
def test_the_mean_throttle_time_that_producers_report_counts(
    allowed_ms: float, requests: int | None, verdict: Verdict
) -> None:
    by_broker = {} if requests is None else {1: BrokerAccount(requests=requests)}
    seen = client(throttle_ms=200, by_broker=by_broker)
    judgement = judged(seen, thresholds=goal(throttle_ms_max=allowed_ms))
    assert judgement.verdict is verdict
    assert rules(judgement) == {"throttled"} or verdict is Verdict.SUSTAINED


@pytest.mark.parametrize(
    ("reported_ms", "brokers_ms", "allowed_ms", "verdict"),
    [
        (0, 4.0, 0.0, Verdict.SUSTAINED),  # other groups are throttled
        (9, 4.0, 0.0, Verdict.INVALID),
        (9, None, 0.0, Verdict.INVALID),
        (9, 4.0, 5.0, Verdict.SUSTAINED),
        (9, 4.0, 3.0, Verdict.INVALID),
        (9, None, 5.0, Verdict.INVALID),  # without metrics there is no mean
    ],
)
def test_a_group_that_a_quota_throttles_makes_a_trial_invalid(
    reported_ms: int, brokers_ms: float | None, allowed_ms: float, verdict: Verdict
) -> None:
    seen = client(groups=(GroupWindow(GroupCounts(3, records=10_000, throttle_ms=reported_ms)),))
    brokers = with_one(fetch_consumer=RequestWindow(throttle_ms=brokers_ms))
    judgement = judged(seen, brokers, goal(throttle_ms_max=allowed_ms))
    assert judgement.verdict is verdict
    if verdict is Verdict.INVALID:
        assert [(r.indicator, r.resource) for r in judgement.reasons] == [
            ("throttled", Resource.QUOTA)
        ]
        assert "consumer group 3 was throttled" in judgement.reasons[0].text


def test_throttling_that_only_the_broker_saw_makes_a_trial_invalid() -> None:
    judgement = judged(brokers=with_one(produce=RequestWindow(throttle_ms=4.0)))
    assert rules(judgement) == {"throttled"}
    assert judgement.reasons[0].resource is Resource.QUOTA


@pytest.mark.parametrize(
    ("throttle_ms", "verdict"),
    [(1e-9, Verdict.SUSTAINED), (0.0004, Verdict.SUSTAINED), (0.001, Verdict.INVALID)],
)
def test_a_throttle_time_within_rounding_is_no_throttling(
    throttle_ms: float, verdict: Verdict
) -> None:
    produce = RequestWindow(per_s=100.0, throttle_ms=throttle_ms)  # of 1,000 requests
    assert judged(brokers=with_one(produce=produce)).verdict is verdict


QUOTAS = goal(throttled_is_overload=True, throttle_ms_max=5.0)
"""A goal that searches for quotas; the other limit has no effect then."""


def test_throttling_is_an_overload_where_the_goal_searches_for_the_quota() -> None:
    throttled = with_one(produce=RequestWindow(per_s=100.0, throttle_ms=4.0))
    judgement = judged(brokers=throttled, thresholds=QUOTAS)
    assert judgement.verdict is Verdict.OVERLOADED
    assert rules(judgement) == {"throttled"}
    assert judgement.limited_by is Resource.QUOTA
    assert "4.0 ms on average" in judgement.attribution
    assert "utilization of the others" in judgement.attribution
    assert judged(thresholds=QUOTAS).verdict is Verdict.SUSTAINED


@pytest.mark.parametrize("blind", [True, False])
def test_throttling_that_only_clients_see_names_the_quota(blind: bool) -> None:
    seen = client(throttle_ms=70)
    judgement = judged(seen, cluster=ClusterFacts(is_blind=blind), thresholds=QUOTAS)
    assert judgement.verdict is Verdict.OVERLOADED
    assert judgement.limited_by is Resource.QUOTA
    assert "producers were throttled for 70 ms" in judgement.attribution


def test_an_invalid_trial_stays_invalid_where_throttling_is_an_overload() -> None:
    throttled = with_one(produce=RequestWindow(per_s=100.0, throttle_ms=4.0))
    failed = client(task_errors=("task 1: lost",))
    judgement = judged(failed, brokers=throttled, thresholds=QUOTAS)
    assert rules(judgement) == {"task_failed"}


def test_a_load_that_can_still_be_throttled_does_not_end_early() -> None:
    rule = next(each for each in INDICATORS if each.name == "throttled")
    assert not rule.is_on(goal().indicators, ClusterFacts())
    assert rule.is_on(QUOTAS.indicators, ClusterFacts(is_blind=True))
    assert Indicator.early is type(rule).early, "unknown until the end"


def test_a_window_too_short_for_the_isr_makes_no_overload_invalid() -> None:
    facts = ClusterFacts(isr_window_s=10.1)
    assert judged(brokers=with_one(handler_idle=0.1), cluster=facts).verdict is Verdict.OVERLOADED


def test_a_window_too_short_for_the_isr_makes_a_sustained_trial_invalid() -> None:
    assert rules(judged(cluster=ClusterFacts(isr_window_s=10.1))) == {"window_too_short"}
    assert judged(cluster=ClusterFacts(isr_window_s=10.0)).verdict is Verdict.SUSTAINED


@pytest.mark.parametrize(
    ("growth", "failed", "words"),
    [
        ({0: 6_000, 1: 6_000}, 0, None),
        ({0: 6_000, 1: 6_004}, 4, None),  # timed out and written all the same
        ({0: 6_000, 1: 6_005}, 4, "1 more than the 12000 acknowledged and 4 failed"),
        ({0: 5_999, 1: 6_001}, 5, "1 acknowledged records are missing"),
        ({0: 6_000}, 0, "6000 acknowledged records are missing"),
        (None, 0, None),
    ],
)
def test_acknowledged_records_are_in_the_log(
    growth: dict[int, int] | None, failed: int, words: str | None
) -> None:
    account = client(errors={"RequestTimedOutError": failed})
    judgement = judged(account, growth=growth)
    if words is None:
        assert judgement.verdict is Verdict.SUSTAINED
    else:
        assert rules(judgement) == {"accounting_mismatch"}
        assert words in judgement.reasons[0].text


def test_the_effects_of_a_killed_broker_are_expected() -> None:
    lost = broker(3, samples_missed=8, start_s=None, handler_idle=None)
    others = [broker(each, fenced_brokers_max=1.0) for each in (1, 2)]
    seen = client(retry_errors={"KafkaConnectionError": 40}, errors={"NotLeaderOrFollowerError": 2})
    by_chance = judged(seen, (*others, lost))
    assert by_chance.verdict is Verdict.INVALID
    assert rules(by_chance) == {
        "metrics_incomplete", "broker_fenced", "leaders_moved", "unexpected_errors",
    }  # fmt: skip
    assert judged(seen, (*others, lost), cluster=ClusterFacts(killed=3)).verdict is not (
        Verdict.INVALID
    )


def test_other_faults_beside_a_killed_broker_make_a_trial_invalid() -> None:
    on_purpose, lost = ClusterFacts(killed=3), broker(3, samples_missed=8, start_s=None)
    blind = judged(brokers=(broker(1), broker(2, samples_missed=8), lost), cluster=on_purpose)
    assert [each.broker_id for each in blind.reasons] == [2]
    missing = judged(growth={0: 5_999, 1: 6_000}, cluster=on_purpose)
    assert rules(missing) == {"accounting_mismatch"}, "an acknowledged record was lost"
