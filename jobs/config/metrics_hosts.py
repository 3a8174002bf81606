"""Sources of the hosts' metrics: node_exporter, a Prometheus server, and /proc of this machine."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from jobs.config.metrics_section import HostSection, SourceTarget
from jobs.config.metrics_server import ServedSection
from metrics.common.bounds import Text
from metrics.sources.hosts.node_exporter import NodeExporters
from metrics.sources.hosts.prometheus_server import ServedHosts
from metrics.sources.hosts.source import HostSource

_DISK = Text(r"[A-Za-z0-9][A-Za-z0-9_.!-]*", "the name of a disk, such as nvme1n1")
DEADLINE_S = 5.0
"""Deadline of a scrape of one host [s]."""


class NodeExporter(ServedSection, HostSection):
    """node_exporter on each broker's host, or the Prometheus server that scrapes it.

    Brokers that share a host may share an endpoint, and a value of the server's label.

    Attributes:
        log_disks: names of the disks that have the brokers' log dirs, as the hosts show them.
    """

    key: ClassVar[str] = "metrics.host.prometheus"
    meaning: ClassVar[str] = "node_exporter on each of them."
    example: ClassVar[str] = "prometheus"
    what: ClassVar[str] = "the brokers' hosts"
    shares_values: ClassVar[bool] = True

    log_disks: tuple[Annotated[str, _DISK], ...] = ()

    def open(self, target: SourceTarget) -> HostSource:
        """See `HostSection.open`."""
        served = self.served(target.hosts, DEADLINE_S)
        if served is not None:
            return ServedHosts(*served, log_disks=self.log_disks).open()
        access, addresses = self.access(), self.addresses(target.hosts)
        return NodeExporters(addresses, DEADLINE_S, access=access, log_disks=self.log_disks).open()


class LocalProc(HostSection):
    """/proc of this machine, for brokers that run on it; needs no configuration."""

    @classmethod
    def configured(cls, value: Any) -> LocalProc:
        """See `SourceSection.configured`."""
        return cls()

    def open(self, target: SourceTarget) -> HostSource:
        """See `HostSection.open`."""
        return target.local_hosts()
