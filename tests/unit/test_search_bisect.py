"""Bisection, for every limit of small axes and every place of an invalid trial."""

from __future__ import annotations

from itertools import product

import pytest

from search.bisect import Bisection
from search.limits import Limits
from search.model import Done, GaveUp, Measure, Observation, Verdict
from tests.support.searching import Scripted, assert_right, expect, run_search, search_steps

pytestmark = pytest.mark.computes

SUSTAINED, OVERLOADED, INVALID = Verdict.SUSTAINED, Verdict.OVERLOADED, Verdict.INVALID


def searcher(start_max: int, cap: int, resolution: float = 0.05, repeats: int = 3) -> Bisection:
    return Bisection(Limits(start_max, cap, resolution, repeats))


def test_every_limit_is_found() -> None:
    starts = [*range(1, 18), 31, 32, 33, 64]
    for start_max, cap_factor, resolution in product(starts, (1, 3), (0.01, 0.05, 0.2, 0.5)):
        limits = Limits(start_max, start_max * cap_factor, resolution, 3)
        for limit in range(limits.load_cap + 1):
            cluster, case = Scripted(limit), (limits, limit)
            result = run_search(Bisection(limits), cluster)
            assert_right(result, limit, limits)
            loads = cluster.loads
            assert all(1 <= load <= limits.load_cap for load in loads), case
            assert len(set(loads)) == len(loads), (case, "no load is measured twice")
            raised = (limits.load_cap - 1).bit_length() if limit >= start_max else 0
            assert len(loads) <= 2 + raised + max(start_max, limit).bit_length(), case


def test_invalid_trials_at_every_position() -> None:
    for start_max in (1, 2, 3, 7, 16):
        cap = 2 * start_max
        for limit in range(cap + 1):
            plain = Scripted(limit)
            expected = run_search(searcher(start_max, cap), plain)
            for position, times in product(range(len(plain.loads)), (1, 2, 3)):
                cluster = Scripted(limit, invalid=frozenset(range(position, position + times)))
                assert run_search(searcher(start_max, cap), cluster) == expected
                repeated = list(plain.loads)
                repeated[position:position] = [plain.loads[position]] * times
                assert cluster.loads == repeated, (start_max, limit, position, times)


def test_too_many_invalid_trials_in_a_row_end_without_a_conclusion() -> None:
    for repeats, position in product((0, 1, 3), range(3)):
        cluster = Scripted(5, invalid=frozenset(range(position, 100)))
        result = expect(GaveUp, run_search(searcher(16, 64, repeats=repeats), cluster))
        assert "invalid" in result.reason and str(repeats) in result.reason
        below = 1 + min(1, repeats)  # trials of a lower load, as the cause may depend on the load
        assert len(cluster.trials) == position + 1 + repeats + below
    anew = Scripted(5, invalid=frozenset({0, 1, 3, 4, 6, 7}))  # counted for every load
    expect(Done, run_search(searcher(16, 64, repeats=2), anew))


def test_light_loads_come_first_and_the_lowest_overload_counts() -> None:
    cluster = Scripted(10**6)
    run_search(searcher(16, 100), cluster)
    assert cluster.loads == [8, 16, 32, 64, 100]
    verdicts = {8: OVERLOADED, 12: SUSTAINED, 4: SUSTAINED, 5: SUSTAINED}
    history = [Observation(load, verdict) for load, verdict in verdicts.items()]
    assert expect(Measure, searcher(16, 64).decide(history)).load == 6


def test_decisions_depend_on_the_history_alone_and_a_resumed_search_repeats_no_trial() -> None:
    for limit in range(70):
        whole = Scripted(limit, invalid=frozenset({2, 5}))
        result, seen = search_steps(searcher(16, 64), whole)
        assert seen[-1] == result
        for cut in range(len(whole.trials) + 1):
            begun = whole.trials[:cut]
            assert searcher(16, 64).decide(begun) == seen[cut], (limit, cut)
            rest = Scripted(limit, invalid=frozenset({2 - cut, 5 - cut}))
            assert run_search(searcher(16, 64), rest, history=begun) == result
            assert begun + rest.trials == whole.trials, (limit, cut)


def test_trials_left_falls_to_zero_at_the_end_and_only_then() -> None:
    for start_max in (1, 2, 16, 128):
        for limit in range(start_max + 1):
            subject, cluster = searcher(start_max, 4 * start_max), Scripted(limit)
            expect(Done, run_search(subject, cluster))
            cuts = range(len(cluster.trials) + 1)
            *before, last = [subject.trials_left(cluster.trials[:cut]) for cut in cuts]
            assert last == 0
            assert min(before) >= 1, (start_max, limit)
    history = [Observation(8, OVERLOADED), Observation(7, SUSTAINED), Observation(8, INVALID)]
    subject = searcher(16, 64)
    assert [subject.trials_left(history[:cut]) for cut in (2, 3)] == [0, 1]
    expect(Measure, subject.decide(history))


def test_trials_left_is_exact_within_one_inside_the_maximum() -> None:
    subject = searcher(1024, 4096)
    for limit in range(512, 1024):
        cluster = Scripted(limit)
        run_search(subject, cluster)
        assert abs(subject.trials_left(cluster.trials[:2]) - (len(cluster.trials) - 2)) <= 1
