"""A source of brokers' metrics that samples this machine, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from metrics.sources.hosts.source import HostSample
from metrics.sources.sample import BrokerSample


class HostSampling:
    """A source of metrics that samples this machine, too, at each poll of the brokers."""

    def __init__(self, source: Any, sample: Callable[[], HostSample]) -> None:
        self._source, self._sample = source, sample
        self.samples: list[HostSample] = []

    def sample_all(self) -> Sequence[BrokerSample]:
        """The samples of the brokers; that of the machine is kept."""
        self.samples.append(self._sample())
        found: Sequence[BrokerSample] = self._source.sample_all()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)
