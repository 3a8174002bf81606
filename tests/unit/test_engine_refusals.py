"""What only executors can find out, such as a missing library, ends a run before any load."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka import codec

from jobs.engine.pattern import ProducerPattern, TrialPlan
from jobs.engine.stage import run_task
from jobs.trials import load
from jobs.trials.load import Generator, GeneratorError
from metrics.client import TaskRow
from search.errors import ConfigError
from tests.support.engine_bench import OneTask


def _plan(**options: Any) -> TrialPlan:
    return TrialPlan("x", "t", ProducerPattern(100, 10.0, **options), 1, 1, (), {}, 0.0, 1.0)


def test_a_task_says_which_codec_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "zstd", None)
    row = run_task(_plan(compression="zstd"), OneTask())
    assert row.is_refused
    assert row.error is not None
    assert row.error.startswith("producer.compression is zstd, and ")
    assert "no package zstandard" in row.error


def test_a_broker_that_cannot_be_reached_is_no_refusal() -> None:
    plan = TrialPlan(
        "x", "t", ProducerPattern(100, 10.0), 1, 1, (1,), {1: ("127.0.0.1", 1)}, 0.0, 1.0,
        connect_timeout_s=1.0,
    )  # fmt: skip
    row = run_task(plan, OneTask())
    assert row.error is not None
    assert not row.is_refused


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_refusal_ends_the_run_and_another_error_only_the_trial(
    monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    rows = [
        TaskRow(0, "h", 1, 0.0, 1.0, error="another task: no"),
        TaskRow(1, "h", 1, 0.0, 1.0, error="no package", is_refused=is_refused),
    ]
    found = [SimpleNamespace(asDict=lambda recursive, row=row: row.to_dict()) for row in rows]
    monkeypatch.setattr(load, "stage_frame", lambda _spark, _plan: SimpleNamespace(collect=list))
    monkeypatch.setattr(load, "run_interruptibly", lambda *_: found)
    generator = Generator(cast("Any", None), 1, {}, cast("Any", None))
    with pytest.raises(ConfigError if is_refused else GeneratorError, match=r"^no package$|2 of 2"):
        generator._run(_plan())
