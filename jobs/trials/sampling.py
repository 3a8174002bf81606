"""The sampling of the brokers and their hosts during a load, and the under-replicated partitions in
the samples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from jobs.trials.context import RunContext
from metrics.sources.hosts.host_sample import HostSample, HostSource
from metrics.sources.sample import BrokerSample
from metrics.sources.sampler import Sampler
from metrics.sources.source import MetricsSource, brokers_of, poll_interval_of
from metrics.trial.evidence import ReplicaEnds


@dataclass(frozen=True)
class Samples:
    """Samples of two kinds: metrics of brokers, controllers and hosts, and end offsets of
    replicas.
    """

    nodes: Sequence[BrokerSample] = ()
    hosts: Sequence[HostSample] = ()
    replicas: Sequence[ReplicaEnds] = ()

    def within(self, start_s: float, end_s: float) -> Samples:
        """The samples from `start_s` up to, but not including, `end_s` [s since the epoch]."""
        return Samples(
            [each for each in self.nodes if start_s <= each.at_s < end_s],
            [each for each in self.hosts if start_s <= each.at_s < end_s],
        )


@dataclass(frozen=True)
class Ends:
    """The end offsets of a trial's replicas, as a source of samples; unknown offsets give no
    sample.
    """

    read: Callable[[], ReplicaEnds | None]

    def sample_all(self) -> Sequence[ReplicaEnds]:
        """The present end offsets."""
        found = self.read()
        return [] if found is None else [found]


class LoadSampler:
    """Samples the nodes' metrics, the brokers' hosts and the replicas, each on its own thread.

    Args:
        nodes, hosts: open sources that have no other user during the sampling; no hosts by default.
        interval_s: intended interval between two samples [s].
        read_replicas: reads the end offsets of the replicas; None if they are not read.
        replicas_s: interval between two readings of the end offsets [s].
    """

    def __init__(
        self,
        nodes: MetricsSource,
        interval_s: float,
        hosts: HostSource | None = None,
        read_replicas: Callable[[], ReplicaEnds | None] | None = None,
        replicas_s: float = 0.0,
    ) -> None:
        self.nodes: Sampler[BrokerSample] = Sampler(nodes, poll_interval_of(nodes, interval_s))
        self._hosts = Sampler(hosts, interval_s) if hosts else None
        self._replicas = Sampler(Ends(read_replicas), replicas_s) if read_replicas else None
        self._all: Sequence[Sampler[Any]] = [
            each for each in (self._hosts, self._replicas, self.nodes) if each
        ]
        self._stack = ExitStack()

    def __enter__(self) -> LoadSampler:
        """Start sampling; the first samples are taken at once."""
        with ExitStack() as stack:
            for each in self._all:
                stack.enter_context(each)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Stop all samplers; see `Sampler.__exit__`."""
        self._stack.__exit__(kind, error, trace)

    def samples_taken(self) -> Samples:
        """The samples until now; if an error ended the sampling early, this error is raised."""
        hosts = self._hosts.samples_taken() if self._hosts else ()
        replicas = self._replicas.samples_taken() if self._replicas else ()
        return Samples(self.nodes.samples_taken(), hosts, replicas)

    def wait_past(self, at_s: float, timeout_s: float) -> None:
        """Wait until samples of each kind exist after a time; see `Sampler.wait_past`."""
        for each in self._all:
            each.wait_past(at_s, timeout_s)

    def forget_before(self, at_s: float) -> None:
        """Drop the samples that were taken before a time [s since the epoch]."""
        for each in self._all:
            each.forget_before(at_s)

    def stop(self) -> Samples:
        """Finish the samples in progress, stop, and return all samples, oldest first."""
        for each in self._all:
            each.stop()
        return self.samples_taken()


READING = "under_replicated_partitions"
FRESH_S = 5.0
"""Largest age of a sample that is used [s]."""


def lacking_now(
    sampler: Sampler[BrokerSample], context: RunContext, clock: Callable[[], float] = time.time
) -> float | None:
    """The present number of under-replicated partitions of all brokers.

    Each broker shows only the partitions that it leads, so a recent reading of every broker is
    necessary; the result is None if one of these readings is missing.
    """
    brokers = brokers_of(context.source)
    if not brokers or brokers != context.addresses.keys():
        return None
    since_s = clock() - FRESH_S
    samples = sampler.samples_taken()
    last = {each.broker_id: each for each in samples if each.at_s >= since_s}
    values = [last[each].values.get(READING) for each in brokers & last.keys()]
    known = [each for each in values if each is not None]
    return sum(known) if len(known) == len(brokers) else None
