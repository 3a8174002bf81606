"""Rest between trials, and the warm-up's measure of speed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from jobs.trials.recovery import unrest, wait_until_calm
from jobs.trials.warm_up import handler_cost_ms, is_steady
from metrics.beans import HANDLER_IDLE_NS, UPTIME_MS, Role
from metrics.evidence import BrokerSample
from metrics.sources.source import NodeInfo
from metrics.windows import BrokerWindow, RequestWindow

WINDOW = BrokerWindow(1, 0.0, 1.0, 1.0, 1, 0, handler_idle=0.97)


@pytest.mark.parametrize(
    ("change", "calm"),
    [
        ({}, True),
        ({"handler_idle": 0.85}, False),
        ({"handler_idle": None}, False),
        ({"replica_lag_max_records": 3.0}, False),
        ({"under_replicated_max": 1.0}, False),
        ({"replica_lag_max_records": 0.0, "under_replicated_max": 0.0}, True),
    ],
)
def test_what_counts_as_rest(change: dict[str, float | None], calm: bool) -> None:
    assert (unrest(replace(WINDOW, **change)) is None) is calm  # type: ignore[arg-type]


class Source:
    """One broker whose handlers are busy until some second."""

    name = "scripted"
    nodes: Mapping[int, NodeInfo] = {1: NodeInfo(1, "4.1.2", frozenset({Role.BROKER}))}

    def __init__(self, busy_until_s: float) -> None:
        self.now_s = 1_000.0
        self._rest_s = 1_000.0 + busy_until_s

    def open(self) -> None: ...

    def close(self) -> None: ...

    def clock(self) -> float:
        return self.now_s

    def pause(self, duration_s: float) -> None:
        self.now_s += duration_s

    def sample_all(self) -> list[BrokerSample]:
        idle_s = max(0.0, self.now_s - self._rest_s)
        values = {HANDLER_IDLE_NS: idle_s * 1e9, UPTIME_MS: self.now_s * 1000.0}
        return [BrokerSample(1, self.now_s, values)]


@pytest.fixture
def busy() -> Source:
    return Source(busy_until_s=7.0)


def test_it_waits_for_a_whole_second_of_rest(busy: Source) -> None:
    heard: list[str] = []
    recovery = wait_until_calm(busy, 60.0, busy.clock, busy.pause, heard.append)
    assert recovery.duration_s == pytest.approx(7.0)
    assert recovery.unrest == ()
    assert heard == ["broker 1: request handlers idle 0.00"] * 7


def test_it_does_not_wait_for_ever(busy: Source) -> None:
    recovery = wait_until_calm(busy, 5.0, busy.clock, busy.pause)
    assert recovery.unrest == ("broker 1: request handlers idle 0.00",)
    assert busy.now_s < 1_007.0


def test_the_cost_of_a_request_is_busy_time_over_rate() -> None:
    loaded = replace(WINDOW, handler_idle=0.2, produce=RequestWindow(per_s=400.0))
    assert handler_cost_ms(loaded) == pytest.approx(2.0)
    assert handler_cost_ms(replace(loaded, produce=RequestWindow())) is None
    assert handler_cost_ms(replace(loaded, handler_idle=None)) is None


@pytest.mark.parametrize(
    ("costs", "steady"),
    [
        ([], False),
        ([4.0, 3.9], False),
        ([4.0, 3.0, 2.0], False),
        ([4.0, 2.0, 1.99, 1.98], True),
        ([4.0, 2.0, 2.3, 1.9], False),
        ([2.0, 2.5, 2.4], True),
    ],
)
def test_warm_is_when_nothing_is_gained_twice_in_a_row(costs: list[float], steady: bool) -> None:
    assert is_steady(costs) is steady
