"""No metrics of the brokers: the Admin API reports their replicas, and clients judge the rest."""

from __future__ import annotations

from typing import Any, ClassVar

from jobs.config.metrics_section import BrokerSection, SourceTarget
from metrics.sources.client_only import ClientOnlySource
from metrics.sources.source import MetricsSource


class ClientOnly(BrokerSection):
    """A cluster that shows no metrics; its key has the value true."""

    key: ClassVar[str] = "metrics.client_only"
    meaning: ClassVar[str] = "the brokers show no metrics, and only what clients see judges."
    example: ClassVar[str] = "client_only: true"
    remedy: ClassVar[str] = "set metrics.client_only: true"
    suits_testbed: ClassVar[bool] = True

    @classmethod
    def field(cls) -> tuple[Any, Any]:
        """See `SourceSection.field`."""
        return bool, False

    @classmethod
    def configured(cls, value: Any) -> ClientOnly | None:
        """See `SourceSection.configured`."""
        return cls() if value else None

    def open(self, target: SourceTarget) -> MetricsSource:
        """See `BrokerSection.open`."""
        look, close = target.open_replicas()
        source = ClientOnlySource(tuple(target.hosts), look, target.version, close)
        try:
            source.open()
        except BaseException:
            source.close()
            raise
        return source
