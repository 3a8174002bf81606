"""Sampling the brokers and their hosts while a trial lasts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

from metrics.sources.hosts.sample import HostSample
from metrics.sources.hosts.source import HostSource
from metrics.sources.sample import BrokerSample
from metrics.sources.sampler import Sampler
from metrics.sources.source import MetricsSource


@dataclass(frozen=True)
class Samples:
    """What was seen of brokers, controllers and hosts."""

    nodes: Sequence[BrokerSample] = ()
    hosts: Sequence[HostSample] = ()

    def within(self, start_s: float, end_s: float) -> Samples:
        """Those of a time [s since the epoch], its end not included."""
        return Samples(
            [each for each in self.nodes if start_s <= each.at_s < end_s],
            [each for each in self.hosts if start_s <= each.at_s < end_s],
        )

    def and_hosts(self, more: Sequence[HostSample]) -> Samples:
        """These, and more of hosts."""
        return Samples(self.nodes, (*self.hosts, *more))


class TrialSampler:
    """Samples the nodes' metrics and the brokers' hosts, each on a thread of its own.

    Args:
        nodes, hosts: open sources, which nobody else uses meanwhile.
        interval_s: between two intended times [s].
    """

    def __init__(self, nodes: MetricsSource, hosts: HostSource, interval_s: float) -> None:
        self.nodes: Sampler[BrokerSample] = Sampler(nodes, interval_s)
        self._hosts: Sampler[HostSample] = Sampler(hosts, interval_s)
        self._stack = ExitStack()

    def __enter__(self) -> TrialSampler:
        """Begin; the first samples are due now."""
        with ExitStack() as stack:
            stack.enter_context(self._hosts)
            stack.enter_context(self.nodes)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """As `Sampler.__exit__`."""
        self._stack.__exit__(kind, error, trace)

    def so_far(self) -> Samples:
        """Until now; raises what ended the sampling early."""
        return Samples(self.nodes.so_far(), self._hosts.so_far())

    def wait_past(self, at_s: float, timeout_s: float) -> None:
        """As `Sampler.wait_past`, for the nodes and then for the hosts."""
        self.nodes.wait_past(at_s, timeout_s)
        self._hosts.wait_past(at_s, timeout_s)

    def forget_before(self, at_s: float) -> None:
        """Keep no sample that was taken before this time [s since the epoch]."""
        self.nodes.forget_before(at_s)
        self._hosts.forget_before(at_s)

    def stop(self) -> Samples:
        """End after the samples in progress; all of them, in the order taken."""
        return Samples(self.nodes.stop(), self._hosts.stop())
