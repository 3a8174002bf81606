"""The interval of a limit: its contents, the readings that widen it, and how often it is right."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.bisect import Bisection
from search.budget import Budget, Budgeted, Spent
from search.estimate import Curve, Prior
from search.guide import Guide
from search.guided import EXTRA_MAX, Guided
from search.limits import Limits
from search.line import FinishedPoint, Line, ProducerRate
from search.model import Bracket, Done, GaveUp, Interval, Measure, Observation, Verdict
from search.posterior import GAINS, NOISES, Odds, Posterior
from tests.support.searching import Scripted, expect, run_on, run_search
from tests.support.simulated_clusters import ClusterSpec, SimulatedCluster

pytestmark = pytest.mark.computes

HELD, OVER, INVALID = Verdict.SUSTAINED, Verdict.OVERLOADED, Verdict.INVALID
LIMITS = Limits(128, 4096, 0.05, 3)


def seen(load: int, used: float) -> Observation:
    verdict = OVER if used > 1.0 else HELD
    return Observation(load, verdict, {"request_handler_idle": used, "achieved": 0.0})


def met(load: int, limit: float, gain: float = 0.75) -> Observation:
    """The reading of a trial at a load, on a cluster with this limit."""
    return seen(load, min(1.25, (load / limit) ** (1.0 / gain)))


def interval(history: Iterable[Observation], guide: Guide | None = None) -> Interval:
    return expect(Interval, (guide or Guide()).interval(list(history)))


def posterior(history: Iterable[Observation], guide: Guide | None = None) -> Posterior:
    return expect(Posterior, (guide or Guide()).posterior(list(history)))


CLEAR = [met(80, 100.3), met(97, 100.2), met(102, 99.8)]


def short(load: int) -> Observation:
    """Another resource binds at 100."""
    lost = 1.0 - min(1.0, 0.99 * 100.0 / load)
    return Observation(load, OVER, {"request_handler_idle": 0.6, "achieved": lost / 0.01})


IDLE_OVER = Observation(151, OVER, {"request_handler_idle": 0.61, "achieved": 1.5})


@pytest.mark.parametrize(
    ("history", "prior", "low", "high"),
    [
        (CLEAR, None, (95.0, 99.0), (101.0, 105.0)),
        ([*CLEAR, met(99, 100.1), met(98, 99.9), met(97, 125.0)], None, (95.0, 105.0),
         (95.0, 105.0)),
        ([met(load, 100.0) for load in (96, 97, 98, 99, 100) * 6], Prior(90_000.0, 0.01),
         (98.5, 101.5), (98.5, 101.5)),
        ([Observation(90, HELD), Observation(100, OVER)], None, (70.0, 92.0), (98.0, 125.0)),
        ([Observation(90, HELD, {"request_handler_idle": 0.55}), short(150), short(108)], None,
         (90.0, 100.0), (100.0, 106.0)),
        ([IDLE_OVER, IDLE_OVER, seen(144, 0.57)], None, (130.0, 151.0), (130.0, 165.0)),
    ],
    ids=["the limit that all trials agree on", "one stray reading", "far from the neighbors",
         "verdicts alone", "delivered records", "no flukes below a far higher limit"],
)  # fmt: skip
def test_an_interval_lies_around_the_limit(
    history: list[Observation],
    prior: Prior | None,
    low: tuple[float, float],
    high: tuple[float, float],
) -> None:
    found = interval(history, Guide(prior=prior))
    assert low[0] < found.low < low[1]
    assert high[0] < found.high < high[1]
    assert found.low < found.high


def test_agreeing_trials_narrow_an_interval_and_contradicting_ones_widen_it() -> None:
    alone = interval(CLEAR)
    widths = [interval(CLEAR + [met(99, 100.0)] * more).relative_width for more in range(4)]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.8 * widths[0]
    torn = [met(80, 100.3), met(97, 91.0), met(97, 107.0), met(102, 95.0)]
    assert interval(torn).relative_width > 2.0 * alone.relative_width
    # Scattering trials lower the confidence.
    calm, scattered = (
        [seen(load, (1 - idle) / 0.8) for load, idle in zip((80, 90, 100), idles, strict=True)]
        for idles in ((0.36, 0.28, 0.19), (0.24, 0.40, 0.14))
    )
    bracket = Bracket(95, 100)
    assert posterior(scattered).inside(bracket) < 0.7 * posterior(calm).inside(bracket)
    # Misleading neighbors move an interval little, and agreeing ones narrow it.
    misled = interval(CLEAR, Guide(prior=Prior(125.0, 0.05)))
    backed = interval(CLEAR, Guide(prior=Prior(100.0, 0.02)))
    assert abs(math.log(misled.high / alone.high)) < 0.05
    assert backed.relative_width < alone.relative_width
    # A saturated overload shows only that the limit is lower.
    low = met(50, 100.0)
    assert interval([low, met(400, 100.0)]).relative_width == pytest.approx(
        interval([low, met(800, 100.0)]).relative_width, rel=0.02
    )
    near = interval([low, Observation(90, OVER, {"request_handler_idle": 1.25, "achieved": 0.0})])
    assert near.high < interval([low]).high
    # Loads in other units move an interval by their factor.
    many = interval(replace(one, load=40 * one.load) for one in CLEAR)
    assert (many.low, many.high) == pytest.approx((40 * alone.low, 40 * alone.high))


def test_the_confidence_is_the_probability_of_the_bracket_in_the_same_posterior() -> None:
    found = posterior(CLEAR)
    around = found.interval()
    whole = Bracket(math.floor(around.low), math.ceil(around.high))
    assert 0.9 <= found.inside(whole) < 1.0
    assert found.quantile(0.5) == pytest.approx(100.0, rel=0.01)
    assert found.inside(Bracket(97, 100)) + found.inside(Bracket(100, 103)) == pytest.approx(
        found.inside(Bracket(97, 103))
    )
    assert found.inside(Bracket(97, None)) == 0.0
    assert found.below(1e-9) == found.below(0.0) == 0.0
    assert found.below(1e9) == pytest.approx(1.0)
    for share in (0.05, 0.5, 0.95):
        assert found.below(found.quantile(share)) == pytest.approx(share)


NOISE, GAIN = NOISES[3], GAINS[7]


def known(by_gain: Mapping[float, float]) -> Odds:
    """The odds with the noise `NOISE` and the given probabilities of gains."""
    row = tuple(math.log(by_gain[gain]) if gain in by_gain else -1e9 for gain in GAINS)
    return Odds(tuple(row if noise == NOISE else (-1e9,) * len(GAINS) for noise in NOISES))


KNOWN = known({GAIN: 1.0})


def probable(away: float) -> float:
    """The probability of a verdict at a distance from the limit [σ]; 4 of 100 are flukes,
    of which half are right by chance.
    """
    return 0.02 + 0.96 * NormalDist().cdf(away)


def sustained_and_read(x: float, load: float, limit: float, error: float) -> float:
    """The probability that a load is sustained and reads `limit` with this error, for ln limit x.

    The limit of the trial lies between both, by their variances, and above the load.
    """
    variance = NOISE**2 + error**2
    between = (x * error**2 + math.log(limit) * NOISE**2) / variance
    sure = (between - math.log(load)) / (NOISE * error / math.sqrt(variance))
    return NormalDist(math.log(limit), math.sqrt(variance)).pdf(x) * probable(sure)


def read_error(used: float, gain: float = 0.75) -> float:
    """The error of an idle fraction (0.005) and of the curve (2 %, and more far from the limit)."""
    return math.hypot(gain * 0.005 / used, 0.02 * math.log(used), 0.12 * math.log(used) ** 2)


def assert_is(found: Posterior, density: Callable[[float], float], low: float, high: float) -> None:
    """Require this density over ln limit, and none of it below `low` or above `high`."""
    parts, each = 50, 80
    step = math.log(high / low) / (parts * each)
    shares = [density(math.log(low) + step * (number + 0.5)) for number in range(parts * each)]
    below = [sum(shares[: part * each]) / sum(shares) for part in range(parts + 1)]
    loads = [low * math.exp(step * part * each) for part in range(parts + 1)]
    assert [found.below(load) for load in loads] == pytest.approx(below, abs=5e-3)


def test_a_single_reading_is_not_a_stray_and_shows_less_the_lower_the_utilization() -> None:
    def density(x: float) -> float:
        return sustained_and_read(x, 100, 100.0 * 0.8**-GAIN, read_error(0.8, gain=2.0))

    guide = Guide(curve=Curve(gain=2.0), odds=KNOWN)
    assert_is(posterior([seen(100, 0.8)], guide), density, 90.0, 160.0)


def test_neighbors_weigh_as_students_t_of_three_degrees() -> None:
    def density(x: float) -> float:
        by_neighbors = (1.0 + ((x - math.log(120.0)) / 0.03) ** 2 / 3.0) ** -2
        return by_neighbors * sustained_and_read(x, 100, 100.0 * 0.9**-GAIN, read_error(0.9))

    guide = Guide(odds=KNOWN, prior=Prior(120.0, 0.03))
    assert_is(posterior([seen(100, 0.9)], guide), density, 80.0, 150.0)


@pytest.mark.parametrize(("held", "over"), [(1, 2), (90, 150)])
def test_a_sustained_and_a_saturated_load_leave_all_limits_between_them_and_flukes(
    held: int, over: int
) -> None:
    """The curve needs a utilization of 1.1875 to saturate, and may be off by a tenth of that."""

    def density(x: float) -> float:
        below = math.log(over) - GAIN * math.log(1.1875)
        sure = (below - x) / math.hypot(NOISE, 0.1 * 0.1875)
        return probable((x - math.log(held)) / NOISE) * probable(sure)

    history = [Observation(held, HELD), seen(over, 1.25)]
    half = math.exp(0.5)
    assert_is(posterior(history, Guide(odds=KNOWN)), density, held / half, over * half)


def test_a_gain_of_finished_sizes_is_shared_with_the_gains_beside_it() -> None:
    """Two points that each say the next gain is half as probable, so a quarter by both."""
    point = known({GAIN: 1.0, GAINS[8]: 0.5})
    found = Odds(((0.0,) * len(GAINS),) * len(NOISES)).after([point, point])
    shares = [[math.exp(log) for log in row] for row in found.logs]
    expected = [0.15, 0.7 + 0.15 / 4, 0.15 + 0.7 / 4, 0.15 / 4]
    assert shares[NOISES.index(NOISE)][6:10] == pytest.approx(expected)
    assert sum(map(sum, shares)) == pytest.approx(sum(expected))


def test_an_interval_without_sustained_loads_and_readings_reaches_down_to_zero() -> None:
    found = Guide().interval([Observation(1, OVER)])
    assert found == Interval(0.0, 1.0)
    done = expect(Done, Guided(LIMITS).decide([Observation(1, OVER), Observation(1, OVER)]))
    assert done.interval == found
    for nothing in ((), (Observation(64, INVALID),), (Observation(64, HELD),), (seen(4, 0.01),)):
        assert Guide().interval(nothing) is None
        assert Guide().posterior(nothing) is None


trials = st.lists(
    st.builds(
        Observation,
        st.integers(1, 20_000),
        st.sampled_from([HELD, OVER, INVALID]),
        st.dictionaries(
            st.sampled_from(["request_handler_idle", "achieved", "isr"]),
            st.floats(0.0, 30.0) | st.sampled_from([0.5, 0.99, 1.0, 1.2]),
        ),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(
    history=trials,
    prior=st.none() | st.builds(Prior, st.floats(1, 1e5), st.floats(0.01, 0.5)),
    curve=st.builds(
        Curve, st.floats(0.3, 2.0), st.floats(0.05, 0.5), st.floats(0.3, 1.0), st.floats(0.0, 0.1)
    ),
)
def test_any_trials_give_an_ordered_interval_or_none_and_always_the_same(
    history: list[Observation], prior: Prior | None, curve: Curve
) -> None:
    guide = Guide(curve=curve, prior=prior)
    found = guide.interval(history)
    assert found == guide.interval(list(history))
    if found is None:
        return
    assert 0.0 <= found.low < found.high < math.inf
    assert 0.0 < found.relative_width <= 1.0
    known = guide.posterior(history)
    if known is not None:
        assert sum(known.weights) == pytest.approx(1.0)
        assert 0.0 <= known.inside(Bracket(10, 100)) <= 1.0


@pytest.mark.parametrize(("noise", "least", "most"), [(0.02, 0.89, 0.96), (0.05, 0.80, 0.95)])
def test_intervals_contain_the_true_limit_at_the_stated_rate(
    noise: float, least: float, most: float
) -> None:
    held, count = 0, 300
    for seed in range(count):
        chance = random.Random(seed)
        capacity = math.exp(chance.uniform(math.log(20.0), math.log(900.0)))
        power = chance.uniform(0.8, 2.0)
        spec = ClusterSpec(capacity, power, noise=noise, reading_noise=0.005, false_alarm=0.02)
        end = run_on(Guided(LIMITS), SimulatedCluster(spec, seed))
        assert end.result.interval is not None
        held += end.result.interval.low <= end.true_limit <= end.result.interval.high
    assert least <= held / count <= most


class Scattered(Scripted):
    """A cluster whose trials have a limit of 100 with scatter, for at most 40 trials."""

    def __init__(self, noise: float, seed: int) -> None:
        super().__init__(100)
        self._chance, self._noise = random.Random(seed), noise

    def measure(self, load: int) -> Observation:
        assert len(self.trials) < 40, "the search does not end"
        limit = 100.0 * math.exp(self._noise * self._chance.gauss(0.0, 1.0))
        self.trials.append(met(load, limit))
        return self.trials[-1]


def ended(limits: Limits, noise: float, seed: int) -> tuple[Done, Sequence[Observation]]:
    cluster = Scattered(noise, seed)
    result = expect(Done, run_search(Guided(limits), cluster))
    return result, cluster.trials


NARROW = replace(LIMITS, interval_max=0.05)


def test_a_wide_interval_is_measured_further_and_a_narrow_one_is_not() -> None:
    before, after, spared = list[float](), list[float](), 0
    for seed in range(40):
        (plain, few), (narrow, more) = ended(LIMITS, 0.03, seed), ended(NARROW, 0.03, seed)
        assert list(more[: len(few)]) == list(few)
        before.append(expect(Interval, plain.interval).relative_width)
        after.append(expect(Interval, narrow.interval).relative_width)
        if before[-1] <= 0.05:
            spared += 1
            assert (narrow, more) == (plain, few)
        else:
            assert len(more) > len(few)
    assert 0 < spared < 40
    assert sum(after) < 0.85 * sum(before)
    # Near the middle, with its reason.
    decision = expect(Measure, Guided(replace(LIMITS, interval_max=0.01)).decide(CLEAR))
    assert 99 <= decision.load <= 101
    assert decision.reason.startswith("the limit is between 9")
    assert decision.reason.endswith(f"at 90 %; measuring {decision.load} to narrow it")


def test_an_interval_that_stays_wide_ends_after_a_fixed_number_of_trials_with_a_note() -> None:
    hopeless = replace(LIMITS, interval_max=0.001)
    for seed in range(10):
        (_, few), (done, more) = ended(LIMITS, 0.05, seed), ended(hopeless, 0.05, seed)
        closing = len(more) - len(few)
        assert closing >= EXTRA_MAX
        assert done.bracket.is_closed(LIMITS.resolution)
        assert done.interval is not None
        assert any(
            note.startswith(f"the limit stays doubtful: between {done.interval.low:.4g} and ")
            and "search.interval_max allows 0.1 %" in note
            for note in done.notes
        )


def test_a_history_cut_anywhere_leads_to_the_same_trials() -> None:
    for seed in range(5):
        done, whole = ended(NARROW, 0.04, seed)
        for cut in range(len(whole)):
            step = expect(Measure, Guided(NARROW).decide(whole[:cut]))
            assert step.load == whole[cut].load
        assert Guided(NARROW).decide(whole) == done
        assert Guided(NARROW).trials_left(whole) == 0


def test_a_search_that_gave_up_has_the_interval_of_its_trials() -> None:
    again = [Observation(load, INVALID) for load in (90, 85, 82) for _ in range(2)]
    history = [met(80, 100.0), met(130, 100.0)]
    blocked = [*history, *[Observation(100, INVALID)] * 4, *again]
    assert expect(GaveUp, Guided(LIMITS).decide(blocked)).interval == interval(history)
    nothing = [*[Observation(100, INVALID)] * 4, *[Observation(25, INVALID)] * 2]
    assert expect(GaveUp, Guided(LIMITS).decide(nothing)).interval is None
    for inner, expected in (
        (Guided(LIMITS), interval(history)),
        (Bisection(LIMITS, Guide()), interval(history)),
        (Bisection(LIMITS), None),
    ):
        searcher = Budgeted(inner, Budget(trials=2), Spent(), 1e6)
        assert expect(GaveUp, searcher.decide(history)).interval == expected


def test_bisection_with_a_guide_makes_the_same_trials_and_states_an_interval() -> None:
    plain, stated = Scattered(0.02, 1), Scattered(0.02, 1)
    bare = run_search(Bisection(LIMITS), plain)
    full = run_search(Bisection(LIMITS, Guide()), stated)
    assert plain.trials == stated.trials
    assert bare.interval is None
    assert full.interval is not None
    assert bare == replace(full, interval=None)


def test_a_line_passes_the_scatter_of_its_trials_to_the_next_size() -> None:
    rate = ProducerRate(bytes_per_s=1e6)
    calm = FinishedPoint(1_000, Done(Bracket(97, 102)), tuple(CLEAR))
    torn = tuple(met(load, limit) for load, limit in ((80, 92), (97, 107), (97, 93), (102, 96)))
    wild = FinishedPoint(1_000, Done(Bracket(97, 102)), torn)
    line = Line((1_000, 1_001), rate, LIMITS)

    def width(line: Line, *finished: FinishedPoint) -> float:
        searcher = line.searcher(1_001, finished)
        return expect(Interval, searcher.interval(CLEAR)).relative_width

    widths = [width(line), width(line, calm), width(line, wild)]
    assert widths[1] < widths[0]
    assert widths[2] > 1.2 * widths[1]
    assert width(replace(line, method="bisection"), wild) == pytest.approx(widths[2])
