"""The partitions that lack a replica, as the brokers' metrics show them while a load runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from jobs.trials.context import RunContext
from metrics.sources.sample import BrokerSample
from metrics.sources.sampler import Sampler
from metrics.sources.source import brokers_of

READING = "under_replicated_partitions"
FRESH_S = 5.0
"""Age up to which a sample counts [s]."""


def lacking_now(
    sampler: Sampler[BrokerSample], context: RunContext, clock: Callable[[], float] = time.time
) -> float | None:
    """The number of partitions of all brokers that lack a replica now.

    None where a broker has no metrics, or its last sample is too old or lacks the reading: each
    broker shows only the partitions that it leads.
    """
    brokers = brokers_of(context.source)
    if not brokers or brokers != context.addresses.keys():
        return None
    return lacking_in(sampler.samples_taken(), brokers, clock() - FRESH_S)


def lacking_in(
    samples: Sequence[BrokerSample], brokers: Collection[int], since_s: float
) -> float | None:
    """The number of partitions that lack a replica, by the last sample of each broker.

    Args:
        samples: samples in the order taken.
        brokers: ids of all brokers.
        since_s: time before which a sample is too old [s since the epoch].
    """
    last: dict[int, BrokerSample] = {}
    for each in reversed(samples):
        if len(last) == len(brokers) or each.at_s < since_s:
            break
        if each.broker_id in brokers:
            last.setdefault(each.broker_id, each)
    values = [each.values.get(READING) for each in last.values() if each.error is None]
    known = [each for each in values if each is not None]
    return sum(known) if len(known) == len(brokers) else None
