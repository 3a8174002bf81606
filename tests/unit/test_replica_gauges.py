"""The partitions that lack a replica by the brokers' metrics, and when these are not enough."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.trials.replica_gauges import FRESH_S, READING, lacking_in, lacking_now
from metrics.sources.beans import Role
from metrics.sources.sample import BrokerSample
from metrics.sources.source import NodeInfo

NOW_S = 1_000.0


def sample(broker: int, value: float | None, at_s: float = NOW_S - 1.0) -> BrokerSample:
    return BrokerSample(broker, at_s, {} if value is None else {READING: value})


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([sample(1, 0.0), sample(2, 0.0)], 0.0),
        ([sample(1, 2.0), sample(2, 1.0)], 3.0),
        ([sample(1, 5.0, NOW_S - 2.0), sample(1, 0.0), sample(2, 0.0)], 0.0),  # the last counts
        ([sample(1, 0.0), sample(2, None)], None),
        ([sample(1, 0.0)], None),
        ([sample(2, 0.0, NOW_S - FRESH_S - 0.1), sample(1, 0.0)], None),
        ([sample(2, 0.0), BrokerSample(1, NOW_S, error="no answer")], None),
        ([sample(1, 0.0), sample(2, 0.0), BrokerSample(1, NOW_S, error="no answer")], None),
        ([sample(1, 0.0), sample(2, 0.0), sample(3, 7.0)], 0.0),  # a controller
        ([], None),
    ],
)
def test_each_broker_has_to_show_its_own_partitions(
    samples: list[BrokerSample], expected: float | None
) -> None:
    assert lacking_in(samples, (1, 2), NOW_S - FRESH_S) == expected


@dataclass
class Taken:
    """A sampler with these samples."""

    samples: list[BrokerSample]

    def samples_taken(self) -> list[BrokerSample]:
        return self.samples


@pytest.mark.parametrize(
    ("nodes", "addresses", "expected"),
    [((1, 2), (1, 2), 0.0), ((1, 2), (1, 2, 3), None), ((1,), (1, 2), None), ((), (), None)],
)
def test_metrics_of_some_brokers_say_nothing_of_the_partitions_of_the_others(
    nodes: tuple[int, ...], addresses: tuple[int, ...], expected: float | None
) -> None:
    roles = frozenset({Role.BROKER})
    source = SimpleNamespace(nodes={each: NodeInfo(each, "4.1", roles) for each in nodes})
    context: Any = SimpleNamespace(source=source, addresses=dict.fromkeys(addresses, ("h", 1)))
    sampler = cast(Any, Taken([sample(1, 0.0), sample(2, 0.0)]))
    assert lacking_now(sampler, context, lambda: NOW_S) == expected
