"""Whose figures the first polls are: one process for two brokers, and two processes for one.

Student's t and chi-squared against SciPy's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from metrics.comparing.effects import chi2_tail, student_quantile, student_tail
from metrics.sources.beans import (
    CONTROLLER_HANDLER_NS,
    HANDLER_IDLE_NS,
    POLL_MS,
    SHARED_HANDLER_IDLE_NS,
    TICKED_S,
    UPTIME_MS,
)
from metrics.sources.first_polls import (
    changes_of_process,
    nodes_of_one_process,
    other_process,
    same_process,
)
from metrics.sources.sample import BrokerSample
from metrics.windows.broker import find_contradiction

APART_S = 0.05


def page(at_s: float, idle_ns: float = 0.0, **readings: float) -> dict[str, float]:
    """The readings of a broker with some load at a time [s]."""
    return {
        HANDLER_IDLE_NS: 5e13 + idle_ns + 9e8 * at_s,
        "bytes_in": 1e9 + 1e6 * at_s,
        "messages_in": 1e6 + 1e3 * at_s,
        "produce_total_ms_count": 5e4 + 10 * at_s,
        "leader_partitions": 10.0,
        **readings,
    }


def polls(
    order: Sequence[Mapping[int, dict[str, float]]], at_s: float = 1e6
) -> list[list[BrokerSample]]:
    return [
        [BrokerSample(node, at_s + i * APART_S, values) for node, values in sorted(each.items())]
        for i, each in enumerate(order)
    ]


def one_after_another(
    nodes: Mapping[int, Mapping[str, float]], rounds: int = 3
) -> list[list[BrokerSample]]:
    """Polls of nodes, each a little later than the one before; a node has own readings."""
    moments = iter(range(rounds * len(nodes)))
    pages = [
        {i: page(next(moments) * APART_S, **own) for i, own in nodes.items()} for _ in range(rounds)
    ]
    return polls(pages)


def test_brokers_that_differ_in_one_reading_are_two_processes() -> None:
    every = one_after_another({1: {}, 2: {}, 3: {"idle_ns": 4e9}, 4: {}})
    assert nodes_of_one_process(every) == [(1, 2, 4)]
    differing = {"idle_ns": 4e8, "leader_partitions": 11.0, "produce_total_ms_count": 7.0}
    for name, value in differing.items():
        assert nodes_of_one_process(one_after_another({1: {}, 2: {name: value}})) == [], name
    # What polls measure themselves tells nothing.
    nodes = {1: {POLL_MS: 3.0, "silent_ms": 1.0}, 2: {POLL_MS: 4.0, "silent_ms": 2.0}}
    assert nodes_of_one_process(one_after_another(nodes)) == [(1, 2)]


def test_polls_that_do_not_show_the_process() -> None:
    still = {HANDLER_IDLE_NS: 7e9, "bytes_in": 0.0, "messages_in": 0.0}
    assert nodes_of_one_process(polls([{1: still, 2: still}] * 3)) == [], "without a load"
    # Counts that are computed from rates begin at 0 with each source.
    computed = page(0.0) | {HANDLER_IDLE_NS: 1e9, f"{TICKED_S}:{HANDLER_IDLE_NS}": 5.0}
    assert nodes_of_one_process(polls([{1: computed, 2: computed}] * 3)) == []
    assert nodes_of_one_process(one_after_another({1: {}, 2: {}}, rounds=1)) == []
    every = one_after_another({1: {}, 2: {}})
    every[1][1] = BrokerSample(2, 1e6, error="no answer")
    assert nodes_of_one_process(every) == []
    assert list(changes_of_process(every)) == []
    assert not same_process([page(0.0), page(1.0)], [page(2.0), page(3.0)]), "not interleaved"


def test_the_meter_that_a_controller_shares_tells_brokers_apart() -> None:
    def shared(ns: float) -> dict[str, float]:
        return {SHARED_HANDLER_IDLE_NS: ns, CONTROLLER_HANDLER_NS: 1.0, HANDLER_IDLE_NS: ns / 7}

    same = one_after_another({1: shared(9e12), 2: shared(9e12)})
    assert nodes_of_one_process(same) == [(1, 2)]
    falling = [[BrokerSample(1, at, page(at) | shared(9e12) | {HANDLER_IDLE_NS: -at})] for at in
               (1.0, 2.0)]  # fmt: skip
    assert list(changes_of_process(falling)) == [], "the broker's part is derived"
    assert nodes_of_one_process(one_after_another({1: shared(9e12), 2: shared(8e12)})) == []


def test_figures_that_jump_back_are_of_two_processes() -> None:
    first, second = page(0.0), page(0.0, idle_ns=-4e12)
    every = polls([{1: first, 2: first}, {1: first, 2: second}])
    ((node, reason),) = changes_of_process(every)
    assert node == 2
    assert reason == "handler_idle_ns fell from 50000000000000 to 46000000000000"


def test_an_uptime_shows_another_process() -> None:
    grew, fell = "its uptime grew by 4900 s within 1.0 s", "its uptime fell from 5000 s to 100 s"
    for before_s, after_s, text in (
        (100.0, 101.0, None),
        (100.0, 110.9, None),  # within the error of the clocks
        (100.0, 5000.0, grew),
        (5000.0, 100.0, fell),
        (5000.0, 0.5, None),  # a restart
    ):
        first = BrokerSample(1, 50.0, {UPTIME_MS: before_s * 1e3})
        second = BrokerSample(1, 51.0, {UPTIME_MS: after_s * 1e3})
        assert other_process(first, second) == text
        contradiction = find_contradiction([first, second]) or ""
        if text is not None:
            assert contradiction == f"broker 1: {text}: another process answered at its address"
        else:
            assert ("restarted" in contradiction) is (after_s < before_s)


def test_students_t_and_chi_squared_are_scipys() -> None:
    from scipy import stats

    for freedom in (1.0, 2.0, 3.7, 5.0, 12.0, 37.0, 1000.0, float("inf")):
        for probability in (0.5, 0.8, 0.9, 0.95, 0.975, 0.9995):
            expected = pytest.approx(stats.t.ppf(probability, freedom), abs=1e-12, rel=1e-9)
            assert student_quantile(probability, freedom) == expected
        for x in (0.0, 0.3, 1.0, 2.5, 40.0):
            assert student_tail(x, freedom) == pytest.approx(stats.t.sf(x, freedom), rel=1e-9)
        assert student_tail(float("inf"), freedom) == 0.0
    for degrees in (1, 2, 7, 30):
        for x in (0.0, 0.5, 3.0, 20.0, 100.0):
            assert chi2_tail(x, degrees) == pytest.approx(stats.chi2.sf(x, degrees), rel=1e-9)
