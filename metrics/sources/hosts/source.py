"""The protocol of a source of host samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from metrics.sources.hosts.sample import HostSample


class HostSource(Protocol):
    """Reads the brokers' hosts, all at once; only one thread at a time may use it."""

    @property
    def brokers(self) -> Mapping[str, tuple[int, ...]]:
        """Host → ids of the brokers that run on it."""
        ...

    @property
    def machines(self) -> frozenset[str]:
        """Names of these hosts as processes on them know them."""
        ...

    def sample_all(self) -> Sequence[HostSample]:
        """One sample of each host; a failed one has its error."""
        ...

    def close(self) -> None:
        """Close the connections; further calls are harmless."""
        ...


class NoHosts:
    """The source where the brokers' hosts are unknown: it has no hosts."""

    def __init__(self) -> None:
        self.brokers: Mapping[str, tuple[int, ...]] = {}
        self.machines: frozenset[str] = frozenset()

    def sample_all(self) -> Sequence[HostSample]:
        """An empty sequence."""
        return ()

    def close(self) -> None:
        """See `HostSource.close`."""
