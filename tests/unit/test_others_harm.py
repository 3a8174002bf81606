"""A run that harms others, as the brokers' metrics show, stops."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.config.goal import GuardLimits
from jobs.trials.guards import HARM_S, Guards
from jobs.trials.others_harm import OVER_S, OthersHarm
from metrics.sources.beans import CONTROLLER_QUEUE_MS, PRODUCE_ERRORS, Role
from metrics.sources.sample import BrokerSample
from metrics.trial.others import Level, Rate
from tests.support.guarded_cluster import Cluster
from tests.support.patterns import pattern
from tests.support.running_loads import running

START_S, OURS_PER_S = 1_000.0, 2_000.0


class Beside:
    """A load of ours on two brokers, beside others who write at a rate that a test changes."""

    def __init__(self, level: float = 1_000.0, deviation: float = 20.0) -> None:
        self.stops: list[str] = []
        self.ended = 0
        self.samples: list[BrokerSample] = []
        self.written, self.theirs, self.now_s = 0.0, 0.0, START_S
        self.errors, self.events, self.waited_ms = 0.0, 0.0, 0.0
        self.guards = Guards(GuardLimits(), Cluster(), str.isdigit, print, lambda: self.now_s)
        self.guards.stop = self.stops.append  # type: ignore[method-assign, assignment]
        nodes = {n: SimpleNamespace(roles=[Role.BROKER]) for n in (1, 2)}
        context = SimpleNamespace(
            source=SimpleNamespace(nodes=nodes),
            guards=self.guards,
            config=SimpleNamespace(cluster=SimpleNamespace(is_exclusive=False)),
        )
        channel = SimpleNamespace(end_now=self._end, fail=pytest.fail, refused=0)
        self.channel = channel
        self.harm = OthersHarm(
            running(pattern(1), channel, context, self.samples),
            Level(Rate(level, deviation), errors=Rate(2.0), controller_queue_ms=1.0),
        )

    def _end(self) -> None:
        self.ended += 1

    def run(
        self, seconds: float, theirs_per_s: float = 1_000.0, errors_per_s: float = 0.0,
        refused_per_s: int = 0, waits_ms: float = 1.0,
    ) -> bool:  # fmt: skip
        """Let the load run; returns whether the run was stopped."""
        for _ in range(int(seconds)):
            self.now_s += 1.0
            self.written += OURS_PER_S
            self.theirs += theirs_per_s
            self.channel.written = int(self.written)
            self.errors += errors_per_s + refused_per_s
            self.channel.refused += refused_per_s
            self.events, self.waited_ms = self.events + 10.0, self.waited_ms + 10.0 * waits_ms
            for broker in (1, 2):
                half = (self.written + self.theirs) / 2
                values = {"messages_in": half, "bytes_in": 1_000 * half}
                values[f"{PRODUCE_ERRORS}:NONE"] = half
                if self.errors:  # Kafka registers the counter at the first error
                    values[f"{PRODUCE_ERRORS}:MESSAGE_TOO_LARGE"] = self.errors / 2
                self.samples.append(BrokerSample(broker, self.now_s, values))
            queue = {"_count": self.events, "_mean": self.waited_ms / self.events}
            values = {f"{CONTROLLER_QUEUE_MS}{end}": value for end, value in queue.items()}
            self.samples.append(BrokerSample(100, self.now_s, values))
            if self.harm.look(self.now_s) is None:
                return True
        return False


def test_others_that_lose_most_of_their_throughput_stop_the_run() -> None:
    beside = Beside()
    assert not beside.run(20, 1_000.0)
    assert beside.run(HARM_S + 2 * OVER_S, 300.0)
    assert beside.ended == 1
    assert beside.stops == [
        (
            "for 15 s, other clients write 300 messages/s under the load, compared with "
            "1,000 without it"
        )
    ]


def test_a_harm_that_ends_in_time_or_is_explained_or_not_guarded_does_not_stop_the_run() -> None:
    for theirs_per_s in (1_000.0, 600.0, 2_000.0):
        assert not Beside().run(60, theirs_per_s)
    assert not Beside(deviation=400.0).run(60, 100.0), "their scatter explains it"
    assert not Beside(level=10.0).run(60, 0.0), "they write too little"
    beside = Beside()
    for theirs_per_s in (1_000.0, 100.0) * 4:
        assert not beside.run(10, theirs_per_s)
    unguarded = Beside()
    unguarded.guards.limits = GuardLimits(
        others_errors_per_s_max=None, controller_queue_ms_max=None
    )
    assert not unguarded.run(60, errors_per_s=900.0, waits_ms=9_000.0)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({"errors_per_s": 30.0}, "get 30 errors/s under the load, compared with 2 without it"),
        ({"errors_per_s": 11.0}, None),
        ({"refused_per_s": 500}, None),
        ({"errors_per_s": 30.0, "refused_per_s": 500}, "get 30 errors/s"),
        (
            {"waits_ms": 1_500.0},
            "wait 1,500 ms for the controller under the load, compared with 1 ms before",
        ),
        ({"waits_ms": 900.0}, None),
    ],
)  # fmt: skip
def test_errors_of_others_and_a_slow_controller_stop_the_run(
    now: dict[str, Any], words: str | None
) -> None:
    beside = Beside()
    assert not beside.run(20)
    assert not beside.run(HARM_S - 1, **now)
    assert beside.run(HARM_S + 2 * OVER_S, **now) == (words is not None)
    assert words is None or words in beside.stops[0]


def test_a_cluster_of_our_own_is_not_watched() -> None:
    beside = Beside()
    assert not isinstance(beside.harm.watch(), nullcontext)
    beside.harm.load.context.config.cluster.is_exclusive = True  # type: ignore[misc]
    assert isinstance(beside.harm.watch(), nullcontext)
