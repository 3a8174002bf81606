"""The guided search: its worst case exhaustively, and what readings, hints and others tell it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from metrics.trial.evidence import Judgement
from metrics.trial.others import ClientTraffic, Level, OtherLoad, OwnTraffic
from metrics.trial.trial import WarmUp
from search.bisect import Bisection
from search.estimate import Curve, Estimate, Prior, below, delivered_readings
from search.guide import Guide
from search.guided import ALLOWANCE, Guided, Shadow
from search.limits import Limits
from search.line import FinishedPoint, Line, ProducerRate
from search.model import (
    Bracket,
    Done,
    GaveUp,
    LoadWords,
    Measure,
    Observation,
    Trials,
    Verdict,
)
from search.signals import AT_REST, HANDLER_IDLE, Signals, own_utilization
from tests.bench.search_overloads import STARTS as OVERLOAD_STARTS
from tests.bench.search_overloads import behavior_of, conditions, overload_cases
from tests.bench.search_recorded import STARTS, ladders, replay_cases
from tests.support.evidence import broker, evidence
from tests.support.rows import trial
from tests.support.searching import (
    Readings,
    Scripted,
    assert_right,
    expect,
    is_off,
    run_on,
    run_search,
    search_steps,
)
from tests.support.simulated_clusters import ClusterSpec, SimulatedCluster

pytestmark = pytest.mark.computes

SUSTAINED, OVERLOADED, INVALID = Verdict.SUSTAINED, Verdict.OVERLOADED, Verdict.INVALID
LIMITS = Limits(128, 4096, 0.05, 3)
FAR = Limits(128, 20_000, 0.05, 3)
QUIET = Guide(states_interval=False)


def as_if_limit_were(fake: float) -> Readings:
    return lambda _, load: {"request_handler_idle": min(1.2, load / fake), "achieved": 0.0}


def bisection_trials(limits: Limits, limit: int) -> int:
    cluster = Scripted(limit)
    run_search(Bisection(limits), cluster)
    return len(cluster.trials)


SMALL = [
    Limits(start_max, start_max * factor, resolution, 3)
    for start_max in (1, 2, 3, 5, 8, 13)
    for factor in (1, 3)
    for resolution in (0.05, 0.25)
]


@pytest.mark.parametrize("limits", SMALL, ids=str)
def test_the_worst_case_holds_for_any_affordable_loads(limits: Limits) -> None:
    """Check every affordable load of every possible guide against every limit."""
    shadow = Shadow(Bisection(limits))
    allowed = [bisection_trials(limits, limit) + ALLOWANCE for limit in range(limits.load_cap + 1)]

    @cache
    def play(used: int, low: int, high: int | None) -> bool:
        bracket = Bracket(low, high)
        if limits.settle_bracket(bracket) is not None:
            reach = limits.load_cap + 1 if high is None else high
            assert all(used <= allowed[limit] for limit in range(low, reach))
            return True
        top = limits.load_cap if high is None else high - 1
        fallback = shadow.next_load(bracket)
        affordable = [
            load
            for load in range(low + 1, top + 1)
            if shadow.excess_after(used, bracket, load) <= ALLOWANCE
        ]
        assert fallback in affordable, "bisection's own next load never costs more"
        if shadow.excess(used + 1, bracket) <= ALLOWANCE:  # a repeat
            play(used + 1, low, high)
        return all(play(used + 1, low, x) and play(used + 1, x, high) for x in affordable)

    assert play(0, 0, None)


utilizations = st.floats(0.0, 30.0) | st.sampled_from([0.0, 0.5, 0.99, 1.0, 1.2])
indicators = st.dictionaries(
    st.sampled_from(["request_handler_idle", "achieved", "isr", "latency_p99"]), utilizations
)
priors = st.none() | st.builds(Prior, st.floats(1, 1e5), st.floats(0.01, 0.5))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_readings_any_axis_monotone_verdicts(data: st.DataObject) -> None:
    start_max = data.draw(st.integers(1, 1024))
    cap = data.draw(st.integers(start_max, 20_000))
    limits = Limits(start_max, cap, data.draw(st.sampled_from([0.01, 0.05, 0.2])), 3)
    limit = data.draw(st.integers(0, cap))
    drawn = data.draw(st.lists(indicators, min_size=1, max_size=12))
    prior = data.draw(priors)
    curve = data.draw(
        st.builds(Curve, st.floats(0.3, 3.0), st.floats(0.05, 0.5), st.floats(0.3, 1.0))
    )
    cluster = Scripted(limit, lambda number, _: drawn[number % len(drawn)])
    result = run_search(Guided(limits, Guide(curve=curve, prior=prior)), cluster)
    assert_right(result, limit, limits)
    assert all(1 <= load <= cap for load in cluster.loads)
    most = bisection_trials(limits, limit) + ALLOWANCE + doublings(limit)
    assert len(cluster.trials) <= most


def doublings(limit: int) -> int:
    """Most trials that the bound on loads before the first overload can cost."""
    return math.ceil(math.log2(max(1, limit)))


@pytest.mark.parametrize("limit", [8, 13, 40, 200])
def test_no_load_is_far_above_the_suggested_limit_before_one_is_overloaded(limit: int) -> None:
    """Bisection's own next load is 64, whatever the readings say."""
    cluster = Scripted(limit, as_if_limit_were(7.0))
    run_search(Guided(Limits(128, 1_000, 0.05, 3), Guide(prior=Prior(4.0, 0.3))), cluster)
    for number, load in enumerate(cluster.loads):
        before = [each.load for each in cluster.trials[:number]]
        if all(each <= limit for each in before):
            assert load <= 2.5 * max([7, *before]), cluster.loads


class AnyVerdict(Scripted):
    """Verdicts and readings from a list, for any load."""

    def __init__(self, script: Sequence[tuple[Verdict, dict[str, float]]]) -> None:
        super().__init__(0)
        self.script = script

    def measure(self, load: int) -> Observation:
        verdict, read = self.script[len(self.trials) % len(self.script)]
        self.trials.append(Observation(load, verdict, read))
        return self.trials[-1]


@settings(max_examples=200, deadline=None)
@given(
    script=st.lists(
        st.tuples(st.sampled_from([SUSTAINED, OVERLOADED, INVALID]), indicators),
        min_size=1,
        max_size=25,
    ),
    start_max=st.integers(1, 300),
    prior=priors,
)
def test_the_search_always_ends_and_notes_each_overload_below_its_answer(
    script: list[tuple[Verdict, dict[str, float]]], start_max: int, prior: Prior | None
) -> None:
    limits = Limits(start_max, 4 * start_max, 0.05, 2)
    cluster = AnyVerdict(script)
    result = run_search(Guided(limits, Guide(prior=prior)), cluster)
    assert len(cluster.trials) < 150
    assert all(1 <= load <= limits.load_cap for load in cluster.loads)
    if isinstance(result, Done):
        assert result.confidence is not None
        assert 0.0 <= result.confidence <= 1.0
        for seen in cluster.trials:
            if seen.verdict is OVERLOADED and seen.load <= result.bracket.sustained:
                beginning = f"{limits.words.amount(seen.load)}: overloaded"
                assert any(note.startswith(beginning) for note in result.notes)


def test_a_cut_history_leads_to_the_same_decisions() -> None:
    subject = Guided(Limits(128, 1000, 0.05, 3), Guide(prior=Prior(90.0, 0.1)))
    for limit in (3, 40, 77, 150, 333):
        whole = Scripted(limit, as_if_limit_were(limit * 1.1))
        result, seen = search_steps(subject, whole)
        for cut in range(len(whole.trials) + 1):
            assert subject.decide(whole.trials[:cut]) == seen[cut]
            rest = Scripted(limit, as_if_limit_were(limit * 1.1))
            assert run_search(subject, rest, history=whole.trials[:cut]) == result
            assert len(rest.trials) == len(whole.trials) - cut


def test_true_readings_make_a_point_in_few_trials() -> None:
    counts = []
    for limit in range(40, 500, 7):
        cluster = Scripted(limit, as_if_limit_were(limit + 0.5))
        result = run_search(Guided(LIMITS, Guide(prior=Prior(limit, 0.05))), cluster)
        assert_right(result, limit, LIMITS)
        counts.append(len(cluster.trials))
    assert max(counts) <= 4
    assert fmean(counts) <= 3.3


def test_a_lone_false_alarm_is_outvoted_and_noted() -> None:
    class OneFlap(Scripted):
        def measure(self, load: int) -> Observation:
            seen = super().measure(load)
            if len(self.trials) == 1:
                flapped = {**seen.indicators, "isr": 1.5}
                self.trials[0] = Observation(load, OVERLOADED, flapped)
            return self.trials[-1]

    cluster = OneFlap(100, as_if_limit_were(100.5))
    result, steps = search_steps(Guided(LIMITS), cluster)
    assert_right(result, 100, LIMITS)
    assert cluster.loads[:2] == [64, 64]
    assert expect(Measure, steps[1]).reason.endswith("repeating it")
    notes = expect(Done, result).notes
    assert any("64 producers: overloaded in 1 of 2" in note for note in notes)


def test_the_reason_is_one_sentence_with_the_numbers_behind_it(snapshot: SnapshotAssertion) -> None:
    history = [Observation(96, SUSTAINED, {"request_handler_idle": 0.75})]
    assert expect(Measure, Guided(Limits(192, 4096, 0.05, 3)).decide(history)).reason == snapshot
    # The axis has any name.
    limits = Limits(4, 12, 0.05, 3, words=LoadWords("consumer groups"))
    result, steps = search_steps(Guided(limits), Scripted(5, as_if_limit_were(5.5)))
    assert expect(Done, result).bracket == Bracket(5, 6)
    for step in steps:
        if isinstance(step, Measure):
            assert "consumer groups" in step.reason and "producers" not in step.reason


def test_trials_left_follows_the_guide_and_ends_at_zero() -> None:
    subject = Guided(LIMITS, Guide(prior=Prior(200.0, 0.05)))
    cluster = Scripted(200, as_if_limit_were(200.5))
    left: list[int] = []
    run_search(subject, cluster, lambda _, history: left.append(subject.trials_left(history)))
    assert left[0] == len(cluster.trials)
    assert left[-1] == 0
    assert subject.trials_left([Observation(190, INVALID)]) == 1 + left[0]
    # Before any trial the limit is foreseen at three quarters of the start.
    for start_max in (15, 55, 85):
        limits, limit = Limits(start_max, 8 * start_max, 0.05, 3), 0.75 * start_max
        usual = Estimate(limit, 1.0, Curve().gain, 1.0)

        def read(_: int, load: int, usual: Estimate = usual) -> dict[str, float]:
            return {"request_handler_idle": usual.utilization_at(load)}

        cluster = Scripted(limit, read)
        run_search(Guided(limits), cluster)
        assert Guided(limits).trials_left(()) == len(cluster.trials)


def test_a_doubt_that_could_not_be_settled_is_noted() -> None:
    """Readings that mislead all the way use up the allowance, and the answer says so."""
    limits, noted = Limits(128, 1024, 0.05, 3), 0
    for limit in range(10, 100):
        cluster = Scripted(limit, as_if_limit_were(3.0 * limit))
        result = run_search(Guided(limits, QUIET), cluster)
        assert_right(result, limit, limits)
        assert len(cluster.trials) <= bisection_trials(limits, limit) + ALLOWANCE
        noted += any("; not repeated, because " in note for note in expect(Done, result).notes)
    assert noted > 0


def seen(load: int, idle: float, achieved: float = 1.0, isr: float = 0.0) -> Observation:
    read = {"request_handler_idle": (1 - idle) / 0.8, "achieved": (1 - achieved) / 0.01, "isr": isr}
    return Observation(load, OVERLOADED if max(read.values()) > 1.0 else SUSTAINED, read)


def next_load(*history: Observation) -> Measure:
    return expect(Measure, Guided(FAR).decide(history))


def paired(cases: Iterable[Any]) -> list[tuple[Any, Any]]:
    """The rows of each case: of the search and of bisection."""
    rows = [each.row() for each in cases]
    own = [one for one in rows if one.method == "redline"]
    return list(zip(own, [one for one in rows if one.method != "redline"], strict=True))


def test_the_guided_search_needs_fewer_trials_than_bisection_in_every_condition() -> None:
    """The figures of `make bench-search`, on fewer points."""
    pairs = paired(overload_cases(conditions(0.05)))
    assert len(pairs) == 20
    assert sum(one.is_held_out for one, _ in pairs) == 10
    for guided, bisection in pairs:
        assert guided.name == bisection.name
        assert guided.trials < bisection.trials - 1.0, guided.name
        assert guided.off_10 <= 0.02, guided.name
    assert fmean(one.off_10 for one, _ in pairs) <= 0.005
    for start, most in {"cold": 5.6, "high": 5.9, "low": 6.7, "line": 4.5}.items():
        of_start = [one.trials for one, _ in pairs if one.name.startswith(OVERLOAD_STARTS[start])]
        assert fmean(of_start) <= most, start


REPLAYS = {start: 40 if start == "cold" else 20 for start in STARTS}
"""Start → searches on each ladder; cold ones are wrong most often, in 1 % of all."""


@pytest.mark.parametrize("start", STARTS)
def test_the_search_on_readings_of_real_brokers(start: str) -> None:
    pairs = paired(replay_cases(ladders(), (start,), REPLAYS[start]))
    assert len(pairs) == len(ladders()) >= 12
    assert sum(one.is_held_out for one, _ in pairs) >= len(pairs) / 2
    for guided, bisection in pairs:
        assert guided.trials < bisection.trials, guided.name
        assert guided.off_10 <= 0.05, guided.name
    assert fmean(one.off_10 for one, _ in pairs) <= 0.015
    assert fmean(one.held for one, _ in pairs) >= 0.85
    assert fmean(one.trials for one, _ in pairs) < fmean(plain.trials for _, plain in pairs) - 1.0


def test_the_delivered_load_of_a_saturated_overload_is_an_upper_bound_and_no_estimate() -> None:
    signals, saturated = Signals(), seen(64, 0.01, achieved=0.9)
    assert signals.delivered(saturated) is None
    assert signals.at_most(saturated) == pytest.approx(57.6)
    assert Guide().estimate(Trials([saturated])) is None
    below_it = next_load(saturated)
    assert below_it.load < 57.6 / 1.5
    assert "idle 0.01 at 64 producers shows only that the limit is lower" in below_it.reason
    # With idle handlers, the delivered load shows the limit.
    short = seen(64, 0.52, achieved=0.7)
    assert signals.at_most(short) is None
    assert signals.delivered(short) == pytest.approx(0.7)
    (equation,) = delivered_readings([short], signals)
    assert math.exp(equation.log_load) == pytest.approx(64 * 0.7 / 0.99)
    assert signals.delivered(Observation(64, OVERLOADED, {"achieved": 30.0})) is not None
    # A very light load is followed by one that is four times as heavy.
    light = next_load(seen(16, 0.98))
    assert light.load == 64
    assert "idle 0.98 at 16 producers shows only that the limit is higher" in light.reason


def test_one_overload_of_handlers_at_rest_is_measured_again() -> None:
    for fluke in (seen(64, 0.9, isr=1.5), seen(64, 0.9, achieved=0.94)):
        assert next_load(fluke) == Measure(
            64, "overloaded at 64 producers with idle 0.90, in one trial; repeating it"
        )
        assert next_load(fluke, fluke).load != 64
    # A heavier overload that left handlers as idle supports a lighter one.
    short = [seen(64, 0.52, achieved=0.8), seen(64, 0.52, achieved=0.8), seen(48, 0.53, 0.95)]
    assert next_load(*short).load != 48


def test_an_estimate_below_a_bound_is_a_normal_curve_cut_off_there() -> None:
    chance = random.Random(1)
    for load, spread, bound in ((100.0, 0.3, 80.0), (100.0, 0.1, 105.0), (100.0, 0.2, 60.0)):
        cut = below(Estimate(load, spread, 1.0, 1.0), bound)
        drawn = [chance.gauss(math.log(load), spread) for _ in range(400_000)]
        kept = [one for one in drawn if one < math.log(bound)]
        mean = sum(kept) / len(kept)
        assert math.log(cut.load) == pytest.approx(mean, abs=0.01)
        variance = sum((one - mean) ** 2 for one in kept) / len(kept)
        assert cut.spread == pytest.approx(math.sqrt(variance), abs=0.01)
    far = Estimate(100.0, 0.05, 1.0, 1.0)
    assert below(far, 200.0) == far
    assert below(far, 50.0).load == 50.0


def hint(load: int, idle: float, idle_at_rest: float | None = None) -> Observation:
    return expect(Observation, WarmUp(load, idle, idle_at_rest=idle_at_rest).hint(0.2))


@pytest.mark.parametrize(
    ("load", "idle", "first", "last", "words"),
    [
        (32, 0.49, 35, 48, "the warm-up put the limit near"),
        (64, 0.0, 21, 21, "idle 0.00 at 64 producers in the warm-up"),
        (64, 0.0, 21, 21, "lower"),
        (64, 1.0, 256, 256, "higher"),
        (64, 0.975, 256, 256, "higher"),
    ],
)
def test_the_warm_up_chooses_the_first_load(
    load: int, idle: float, first: int, last: int, words: str
) -> None:
    decision = expect(Measure, Guided(FAR, Guide().with_hint(hint(load, idle))).decide(()))
    assert first <= decision.load <= last
    assert words in decision.reason
    assert WarmUp().hint(0.2) is None
    assert WarmUp(64, None).hint(0.2) is None


def test_beside_others_a_hint_counts_what_they_leave() -> None:
    """The handlers' busy time is that of others and, up to the limit of 100, that of the load."""
    for theirs, load in product((0.0, 0.2, 0.4, 0.6), (30, 50)):
        busy = theirs + (0.8 - theirs) * load / 100
        beside, alone = hint(load, 1.0 - busy, 1.0 - theirs), hint(load, 1.0 - 0.8 * load / 100)
        prior, expected = (expect(Prior, Guide().with_hint(each).prior) for each in (beside, alone))
        assert prior.load == pytest.approx(expected.load)
    assert own_utilization(1.2, 0.5) == 1.2  # others that leave nothing take nothing
    assert own_utilization(0.7, 1.1) == 0.7
    assert own_utilization(0.3, 0.4) == 0.0


def test_only_the_first_measured_size_uses_the_hint_and_the_generators_load() -> None:
    """Messages of another size cost the generator another time."""
    line = Line((100, 1000), ProducerRate(bytes_per_s=1e5), FAR, hint=hint(32, 0.49))
    assert line.guide_for(1000, ()).prior is not None
    done = FinishedPoint(1000, Done(Bracket(40, 42)), (Observation(42, OVERLOADED, {}),))
    found = line.guide_for(100, (done,)).prior
    assert found is None or found.source != "the warm-up"
    capped = Line(
        (100, 1_000), ProducerRate(bytes_per_s=1e6), replace(FAR, first_max=20), guide=QUIET
    )
    done = FinishedPoint(1_000, Done(Bracket(95, 100)), (Observation(95, SUSTAINED),))
    first = expect(Measure, capped.searcher(1_000, ()).decide(()))
    second = expect(Measure, capped.searcher(100, (done,)).decide(()))
    assert (first.load, second.load > 20) == (20, True)
    tried = (Observation(15, SUSTAINED), Observation(16, OVERLOADED))
    unfinished = FinishedPoint(1_000, GaveUp(Bracket(15, 16), "the budget is used up"), tried)
    third = expect(Measure, capped.searcher(100, (unfinished,)).decide(()))
    assert third.load <= 15, "bisection would begin with 64"


def test_a_misleading_hint_costs_a_trial_more_than_any_misleading_guide_at_most() -> None:
    chance = random.Random(5)
    for limit in (3, 8, 20, 40, 50, 64, 100, 127, 128, 129, 300, 900):
        spec = ClusterSpec(limit + 0.5)
        plain = run_on(Bisection(FAR), SimulatedCluster(spec, 1)).trials
        for _ in range(20):
            load = round(math.exp(chance.uniform(0.0, math.log(2000.0))))
            seen = hint(load, chance.choice((0.0, chance.uniform(0.0, 0.8))))
            end = run_on(Guided(FAR, QUIET.with_hint(seen)), SimulatedCluster(spec, 1))
            misled = seen.indicators["request_handler_idle"] > 1.0 and load <= limit
            assert end.trials <= plain + ALLOWANCE + doublings(limit) + misled, (limit, load)


def test_a_hint_saves_trials_where_a_single_size_starts_cold() -> None:
    saved, wrong, count = 0, 0, 150
    for seed in range(count):
        chance = random.Random(seed)
        capacity = math.exp(chance.uniform(math.log(16.0), math.log(250.0)))
        spec = replace(behavior_of(chance, chance.choice((1.25, 3.0))), capacity=capacity)
        cold = run_on(Guided(FAR, QUIET), SimulatedCluster(spec, seed))
        warmed = SimulatedCluster(replace(spec, noise=0.05, false_alarm=0.0), seed + 1).measure(64)
        seen = hint(64, max(0.0, 1.0 - 0.8 * warmed.indicators["request_handler_idle"]))
        hinted = run_on(Guided(FAR, QUIET.with_hint(seen)), SimulatedCluster(spec, seed))
        saved += cold.trials - hinted.trials
        wrong += is_off(hinted, 0.10)
    assert saved >= 0.5 * count
    assert wrong <= 0.01 * count
    # It is no bound: warm brokers sustain far more than cold ones.
    guided = Guided(FAR, Guide().with_hint(hint(64, 0.0)))
    end = run_on(guided, SimulatedCluster(ClusterSpec(300.0), 1))
    assert expect(Done, end.result).bracket.sustained == pytest.approx(290, abs=12)


class Shared(SimulatedCluster):
    """A cluster whose handlers others use to a share of the threshold."""

    def __init__(self, capacity: float, seed: int, theirs: float, is_known: bool = True) -> None:
        super().__init__(ClusterSpec(capacity=capacity), seed)
        self._theirs, self._is_known = theirs, is_known

    def measure(self, load: int) -> Observation:
        seen = super().measure(load)
        readings = dict(seen.indicators)
        if (used := readings.get(HANDLER_IDLE)) is not None and used < 1.0:
            readings[HANDLER_IDLE] = self._theirs + (1.0 - self._theirs) * used
        if self._is_known:
            readings[AT_REST] = self._theirs
        return replace(seen, indicators=readings)


def trials_needed(theirs: float, is_known: bool = True) -> float:
    """Mean number of trials to find a limit."""
    counts = []
    for seed, capacity in enumerate((9.0, 23.0, 41.0, 77.0, 120.0, 260.0) * 5):
        cluster = Shared(capacity, seed, theirs, is_known)
        found = run_on(Guided(Limits(128, 20_000, 0.1, 3), Guide()), cluster).result
        assert 0.8 <= expect(Done, found).bracket.sustained / capacity <= 1.1
        counts.append(len(cluster.trials))
    return fmean(counts)


def test_others_cost_no_further_trials() -> None:
    alone = trials_needed(0.0)
    for theirs in (0.3, 0.6):
        assert trials_needed(theirs) <= alone + 0.25
        assert trials_needed(theirs, is_known=False) > alone + 0.5, "no effect of the reading"


def test_a_trial_states_what_others_used_when_they_were_last_measured() -> None:
    rates = ClientTraffic(1.0, 0.0, 0.0)
    brokers = (broker(1, handler_idle=0.4), broker(2, handler_idle=0.5))
    for idle_at_rest, lately, expected in (
        (0.6, None, 0.5), (1.0, None, None), (None, None, None), (0.9, 0.6, 0.5), (0.6, 1.0, None),
    ):  # fmt: skip
        others = OtherLoad.of(rates, OwnTraffic(0.0, 0.0), Level.of([rates], lately))
        made = replace(
            trial(),
            evidence=evidence(brokers=brokers, others=others),
            judgements={"g": Judgement(SUSTAINED, (), {HANDLER_IDLE: 0.75})},
            warm_up=WarmUp(idle_at_rest=idle_at_rest),
        )
        assert made.observation("g").indicators.get(AT_REST) == pytest.approx(expected)
