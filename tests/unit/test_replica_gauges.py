"""The partitions that lack a replica by the brokers' metrics, and when these are not enough."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from jobs.trials.sampling import FRESH_S, READING, lacking_in, lacking_now
from metrics.sources.beans import Role
from metrics.sources.sample import BrokerSample
from metrics.sources.source import NodeInfo

NOW_S = 1_000.0


def sample(broker: int, value: float | None, at_s: float = NOW_S - 1.0) -> BrokerSample:
    return BrokerSample(broker, at_s, {} if value is None else {READING: value})


def test_each_broker_has_to_show_its_own_partitions() -> None:
    mute = BrokerSample(1, NOW_S, error="no answer")
    resting = [sample(1, 0.0), sample(2, 0.0)]
    cases: list[tuple[list[BrokerSample], float | None]] = [
        (resting, 0.0),
        ([sample(1, 2.0), sample(2, 1.0)], 3.0),
        ([sample(1, 5.0, NOW_S - 2.0), *resting], 0.0),  # the last counts
        ([sample(1, 0.0), sample(2, None)], None),
        ([sample(1, 0.0)], None),
        ([sample(2, 0.0, NOW_S - FRESH_S - 0.1), sample(1, 0.0)], None),
        ([sample(2, 0.0), mute], None),
        ([*resting, mute], None),
        ([*resting, sample(3, 7.0)], 0.0),  # a controller
        ([], None),
    ]
    for samples, expected in cases:
        assert lacking_in(samples, (1, 2), NOW_S - FRESH_S) == expected, samples


def test_metrics_of_some_brokers_say_nothing_of_the_partitions_of_the_others() -> None:
    roles = frozenset({Role.BROKER})
    sampler: Any = SimpleNamespace(samples_taken=lambda: [sample(1, 0.0), sample(2, 0.0)])
    cases: list[tuple[tuple[int, ...], tuple[int, ...], float | None]] = [
        ((1, 2), (1, 2), 0.0), ((1, 2), (1, 2, 3), None), ((1,), (1, 2), None), ((), (), None),
    ]  # fmt: skip
    for nodes, addresses, expected in cases:
        source = SimpleNamespace(nodes={each: NodeInfo(each, "4.1", roles) for each in nodes})
        context: Any = SimpleNamespace(source=source, addresses=dict.fromkeys(addresses, ("h", 1)))
        assert lacking_now(sampler, context, lambda: NOW_S) == expected
