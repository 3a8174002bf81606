"""Loading cold brokers: blocks that fail are loaded again, and not for ever."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from jobs.cluster.topic_set import TopicSet
from jobs.console.events import PhaseStarted, RecordingReporter
from jobs.trials import warm_up as module
from jobs.trials.context import RunContext
from jobs.trials.load import GeneratorError, StageFailedError
from jobs.trials.warm_up import BLOCK_S, FAILED_MAX, warm_up

TOPIC = cast(TopicSet, SimpleNamespace(names=("t",)))


class Blocks:
    """Stands for the blocks of load: what becomes of each, in turn."""

    def __init__(self, *ends: float | Exception | None) -> None:
        self.ends: Iterator[float | Exception | None] = iter(ends)
        self.numbers: list[int] = []

    def __call__(self, context: RunContext, topics: TopicSet, number: int) -> float | None:
        self.numbers.append(number)
        end = next(self.ends)
        if isinstance(end, Exception):
            raise end
        return end


def warmed(monkeypatch: pytest.MonkeyPatch, blocks: Blocks, load_max_s: float = 60.0) -> list[str]:
    """What was said while it was warmed up by these blocks."""
    reporter = RecordingReporter()
    monkeypatch.setattr(module, "_block", blocks)
    warm_up(cast(RunContext, SimpleNamespace(reporter=reporter)), load_max_s, TOPIC)
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
