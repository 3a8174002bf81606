"""The protocol of a source of host samples, and which brokers run on which host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from metrics.sources.hosts.sample import HostSample


class HostSource(Protocol):
    """Looks at the brokers' hosts, all at once. Not for use by two threads at the same time."""

    @property
    def brokers(self) -> Mapping[str, tuple[int, ...]]:
        """Host → ids of the brokers that run on it."""
        ...

    @property
    def machines(self) -> frozenset[str]:
        """Names of the machines that these hosts are, as their own processes know them."""
        ...

    def sample_all(self) -> Sequence[HostSample]:
        """One look at each host; a failed one carries its error."""
        ...

    def close(self) -> None:
        """Give back what was opened; further calls are harmless."""
        ...


class NoHosts:
    """Nothing is known of the brokers' hosts."""

    def __init__(self) -> None:
        self.brokers: Mapping[str, tuple[int, ...]] = {}
        self.machines: frozenset[str] = frozenset()

    def sample_all(self) -> Sequence[HostSample]:
        """None."""
        return ()

    def close(self) -> None:
        """See `HostSource.close`."""
