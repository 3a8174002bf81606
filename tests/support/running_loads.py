"""A running load of a test: its channel keeps what it sends, and its samples are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from jobs.trials.control_server import TaskChannel
from jobs.trials.load import Load
from jobs.trials.running_load import RunningLoad
from jobs.trials.sampling import Samples
from metrics.sources.sample import BrokerSample
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.evidence import ClusterFacts

START_S = 1_000.0


class SentChannel(TaskChannel):
    """The channel of a load of one task, which has begun at `START_S` unless another time is given.

    Attributes:
        sent: the messages to the task.
    """

    def __init__(self, start_s: float | None = START_S) -> None:
        super().__init__("driver", 1, 1, lambda call: call())
        self.sent: list[dict[str, float]] = []
        if start_s is not None:
            self.receive(0, {"start_s": start_s})

    def _send_soon(self, **message: Any) -> None:
        self.sent.append(message)

    def sent_as(self, name: str) -> list[float]:
        """The values of all messages of a name."""
        return [each[name] for each in self.sent if name in each]

    @property
    def ends_s(self) -> list[float]:
        """The lengths of the window that were sent [s]."""
        return self.sent_as("end_after_s")


class Taken:
    """A sampler whose samples are given."""

    def __init__(self, taken: Callable[[], Samples]) -> None:
        self.samples_taken = taken
        self.nodes = SimpleNamespace(samples_taken=lambda: taken().nodes)


def running(
    pattern: TrafficPattern,
    channel: Any,
    context: Any,
    nodes: Sequence[BrokerSample] = (),
    *,
    samples: Callable[[], Samples] | None = None,
    facts: ClusterFacts | None = None,
    **of_load: Any,
) -> RunningLoad:
    """A load that runs.

    Args:
        nodes: the samples of the nodes, to which a test may append.
        samples: returns all samples, in place of those.
        of_load: further fields of `Load`.
    """
    sampler: Any = Taken(samples or (lambda: Samples(nodes)))
    topics: Any = SimpleNamespace(names=("t",), message_bytes=pattern.message_bytes)
    load = Load("r-1", of_load.pop("topics", topics), pattern, {}, **of_load)
    return RunningLoad(context, load, channel, sampler, facts or ClusterFacts())
