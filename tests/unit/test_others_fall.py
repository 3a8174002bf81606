"""A run that takes the room of others stops."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import cast

import pytest

from jobs.config.goal import GuardLimits
from jobs.trials.context import RunContext
from jobs.trials.control_server import TaskChannel
from jobs.trials.guards import HARM_S, Guards
from jobs.trials.others_fall import OVER_S, OthersFall
from metrics.sources.beans import Role
from metrics.sources.sample import BrokerSample
from metrics.sources.sampler import Sampler
from metrics.trial.others import Level, Rate
from tests.support.guarded_cluster import Cluster
from tests.support.patterns import pattern

START_S, OURS_PER_S = 1_000.0, 2_000.0


class Beside:
    """A load of ours on two brokers, beside others who write at a rate that a test changes."""

    def __init__(self, level: float = 1_000.0, deviation: float = 20.0) -> None:
        self.stops: list[str] = []
        self.ended = 0
        self.samples: list[BrokerSample] = []
        self.written, self.theirs, self.now_s = 0.0, 0.0, START_S
        self.guards = Guards(GuardLimits(), Cluster(), str.isdigit, print, lambda: self.now_s)
        self.guards.stop = self.stops.append  # type: ignore[method-assign, assignment]
        nodes = {n: SimpleNamespace(roles=[Role.BROKER]) for n in (1, 2)}
        context = SimpleNamespace(
            source=SimpleNamespace(nodes=nodes),
            guards=self.guards,
        )
        channel = SimpleNamespace(end_now=self._end, fail=pytest.fail)
        self.channel = channel
        self.fall = OthersFall(
            cast(RunContext, context),
            pattern(1),
            cast(TaskChannel, channel),
            cast("Sampler[BrokerSample]", SimpleNamespace(samples_taken=lambda: self.samples)),
            Level(Rate(level, deviation)),
        )

    def _end(self) -> None:
        self.ended += 1

    def run(self, seconds: float, theirs_per_s: float) -> bool:
        """Let the load run; returns whether the run was stopped."""
        for _ in range(int(seconds)):
            self.now_s += 1.0
            self.written += OURS_PER_S
            self.theirs += theirs_per_s
            self.channel.written = int(self.written)
            for broker in (1, 2):
                half = (self.written + self.theirs) / 2
                values = {"messages_in": half, "bytes_in": 1_000 * half}
                self.samples.append(BrokerSample(broker, self.now_s, values))
            if self.fall.look(self.now_s) is None:
                return True
        return False


def test_others_that_lose_most_of_their_throughput_stop_the_run() -> None:
    beside = Beside()
    assert not beside.run(20, 1_000.0)
    assert beside.run(HARM_S + 2 * OVER_S, 300.0)
    assert beside.ended == 1
    (why,) = beside.stops
    assert (
        why == "for 15 s, other clients write 300 messages/s under the load, and 1,000 without it"
    )


@pytest.mark.parametrize("theirs_per_s", [1_000.0, 600.0, 2_000.0])
def test_others_that_keep_half_of_it_do_not(theirs_per_s: float) -> None:
    assert not Beside().run(60, theirs_per_s)


def test_a_fall_that_ends_in_time_does_not() -> None:
    beside = Beside()
    for theirs_per_s in (1_000.0, 100.0) * 4:
        assert not beside.run(10, theirs_per_s)


def test_a_fall_that_their_scatter_explains_does_not() -> None:
    assert not Beside(deviation=400.0).run(60, 100.0)


@pytest.mark.parametrize("offset_s", [0.0, 0.4, 0.9])
def test_samples_between_two_looks_count_our_records_in_proportion(offset_s: float) -> None:
    """The first sample is at a look, the last one is not."""
    beside = Beside()
    assert not beside.run(20, 1_000.0)

    def sample(broker: int, at_s: float) -> BrokerSample:
        half = (OURS_PER_S + 1_000.0) * (at_s - START_S) / 2
        return BrokerSample(broker, at_s, {"messages_in": half, "bytes_in": 1_000 * half})

    times_s = (START_S + 8.0, START_S + 14.0 + offset_s)
    samples = [sample(broker, at_s) for at_s in times_s for broker in (1, 2)]
    assert beside.fall._theirs_per_s(samples) == pytest.approx(1_000.0)


def test_brokers_without_others_are_not_watched() -> None:
    assert isinstance(Beside(level=10.0).fall.watch(), nullcontext)
    assert not isinstance(Beside().fall.watch(), nullcontext)
