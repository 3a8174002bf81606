"""A load outside of trials that fails states its cause."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import cast

import pytest

from jobs.cluster.topic_set import TopicSet
from jobs.config.loading import load
from jobs.trials import unscored_load as module
from jobs.trials.context import RunContext
from jobs.trials.load import GeneratorError
from metrics.traffic.pattern import TrafficPattern

CONFIG = load("calibrated", "calibrated", "default")


class Guards:
    """Guards that have ended the load for a reason, or have not."""

    def __init__(self, ends_load: str | None) -> None:
        self.ends_load = ends_load
        self.settled: list[object] = []

    def admit(self, pattern: TrafficPattern) -> None: ...

    def require_room(self, pattern: TrafficPattern, topics: object) -> None: ...

    def required(self) -> nullcontext[None]:
        return nullcontext()

    def settle(self, _pattern: TrafficPattern, client: object) -> None:
        self.settled.append(client)


@pytest.mark.parametrize(
    ("ends_load", "expected"),
    [("broker 2 left the cluster", "broker 2 left the cluster"), (None, "no broker 2")],
)
def test_a_load_that_a_guard_ended_states_why(
    ends_load: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise GeneratorError("no broker 2")

    monkeypatch.setattr(module, "Sampler", lambda *_: nullcontext())
    monkeypatch.setattr(module, "Target", SimpleNamespace(of=lambda *_: None))
    monkeypatch.setattr(module, "poll_interval_of", lambda *_: 1.0)
    guards = Guards(ends_load)
    context = SimpleNamespace(
        source=None,
        addresses={},
        workload=CONFIG.workload,
        guards=guards,
        tables=SimpleNamespace(settle=lambda: None),
        generator=SimpleNamespace(offer=fail),
        run_id="r",
    )
    topics = cast(TopicSet, SimpleNamespace(names=("t",)))
    pattern = CONFIG.pattern(1_000, 1, 3)
    with pytest.raises(GeneratorError) as error:
        module.offer_unscored(cast(RunContext, context), topics, pattern, "climb")
    assert str(error.value) == expected
    assert guards.settled == [None]
