"""Loading cold brokers: blocks that fail are loaded again, and not for ever."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from jobs.cluster.topic_set import TopicSet
from jobs.config.loading import load
from jobs.console.events import PhaseStarted, RecordingReporter
from jobs.trials import warm_up as module
from jobs.trials.context import RunContext
from jobs.trials.load import GeneratorError, StageFailedError
from jobs.trials.warm_up import BLOCK_S, FAILED_MAX, LOOK_S, LOOKS_MAX, warm_up
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.warm_up import WarmUp

TOPIC = cast(TopicSet, SimpleNamespace(names=("t",), message_bytes=1_000))
CONFIG = load("calibrated", "calibrated", "default")
START = CONFIG.goal.search.load_start_max // 2


class Blocks:
    """Stands for the blocks of load: what becomes of each, in turn.

    Args:
        capacity: load at which the handlers have no idle time left.
    """

    def __init__(self, *ends: float | Exception | None, capacity: float = 1e9) -> None:
        self.ends: Iterator[float | Exception | None] = iter(ends)
        self.numbers: list[int] = []
        self.patterns: list[TrafficPattern] = []
        self._capacity = capacity

    @property
    def loads(self) -> list[int]:
        """What was offered in each block."""
        return [each.np for each in self.patterns]

    def __call__(
        self, context: RunContext, topics: TopicSet, pattern: TrafficPattern, number: int
    ) -> float | None:
        self.numbers.append(number)
        self.patterns.append(pattern)
        end = next(self.ends)
        if isinstance(end, Exception):
            raise end
        context.warm_up = WarmUp(pattern.np, max(0.0, 1.0 - pattern.np / self._capacity))
        return end


def warmed(monkeypatch: pytest.MonkeyPatch, blocks: Blocks, load_max_s: float = 60.0) -> list[str]:
    """What was said while it was warmed up by these blocks."""
    reporter = RecordingReporter()
    monkeypatch.setattr(module, "_block", blocks)
    context = SimpleNamespace(
        reporter=reporter,
        config=CONFIG,
        workload=CONFIG.workload,
        pattern=lambda bpm, load: CONFIG.pattern(bpm, load, 3),
        guards=SimpleNamespace(trouble_with=lambda _: None),
        warm_up=WarmUp(),
    )
    warm_up(cast(RunContext, context), load_max_s, TOPIC)
    return [event.text for event in reporter.events if isinstance(event, PhaseStarted)]


def test_a_block_whose_executor_is_lost_is_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = StageFailedError("task 1 was lost")
    blocks = Blocks(lost, 9.0, GeneratorError("no broker 2"), 5.0, 5.0, 5.0)
    said = warmed(monkeypatch, blocks)
    assert blocks.numbers == [1, 2, 3, 4, 5, 6]
    assert said[1:] == [
        "warming up the brokers again: task 1 was lost",
        "warming up the brokers again: no broker 2",
    ]


def test_blocks_that_go_on_failing_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = Blocks(*[StageFailedError("task 1 was lost")] * (FAILED_MAX + 1))
    with pytest.raises(StageFailedError, match="task 1 was lost"):
        warmed(monkeypatch, blocks)
    assert len(blocks.numbers) == FAILED_MAX + 1


def test_it_ends_when_nothing_is_gained_or_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steady = Blocks(9.0, 5.0, 5.0, 5.0, 5.0)
    warmed(monkeypatch, steady)
    assert len(steady.numbers) == 4
    faster = Blocks(*[100.0 * 0.8**i for i in range(10)])
    warmed(monkeypatch, faster, load_max_s=5 * BLOCK_S)
    assert len(faster.numbers) == 5


def test_without_a_metric_of_the_cost_one_block_is_all(monkeypatch: pytest.MonkeyPatch) -> None:
    blind = Blocks(None, None)
    warmed(monkeypatch, blind)
    assert len(blind.numbers) == 1


def test_where_no_idle_time_is_left_less_load_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = Blocks(*[5.0] * 9, capacity=0.4 * START)
    warmed(monkeypatch, blocks)
    assert blocks.loads == [START, START, START, START // 2, START // 4]
    assert all(each.phases.warmup_s == 0.0 for each in blocks.patterns[:3])
    assert all(0 < each.phases.measure_s < BLOCK_S for each in blocks.patterns[3:])
    hopeless = Blocks(*[5.0] * 9, capacity=0.01)
    warmed(monkeypatch, hopeless)
    assert len(hopeless.loads) == 3 + LOOKS_MAX
    readable = Blocks(*[5.0] * 9, capacity=1.1 * START)
    warmed(monkeypatch, readable)
    assert len(readable.loads) == 3


@pytest.mark.parametrize(("load_max_s", "block_s"), [(19.0, 10.0), (16.0, 10.0), (12.0, 6.0)])
def test_where_there_is_time_for_one_block_it_is_one_that_can_be_read(
    monkeypatch: pytest.MonkeyPatch, load_max_s: float, block_s: float
) -> None:
    readable = Blocks(*[5.0] * 9, capacity=0.6 * START)
    warmed(monkeypatch, readable, load_max_s=load_max_s)
    assert readable.loads == [START // 2]
    saturated = Blocks(*[5.0] * 9, capacity=0.4 * START)
    warmed(monkeypatch, saturated, load_max_s=load_max_s)
    assert saturated.loads == [START // 2, START // 4]
    assert [each.phases.measure_s for each in saturated.patterns] == [block_s, LOOK_S]


def test_looks_keep_to_the_time_that_is_left_and_end_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = Blocks(*[5.0] * 9, capacity=0.01)
    warmed(monkeypatch, short, load_max_s=3 * BLOCK_S)
    assert short.loads == [START, START, START // 2], "the last block makes room for a look"
    none = Blocks(*[5.0] * 9, capacity=0.01)
    warmed(monkeypatch, none, load_max_s=BLOCK_S)
    assert none.loads == [START // 2]
    lost = Blocks(5.0, 5.0, 5.0, GeneratorError("no broker 2"), capacity=0.01)
    assert warmed(monkeypatch, lost)[1:] == ["going on without another look: no broker 2"]
