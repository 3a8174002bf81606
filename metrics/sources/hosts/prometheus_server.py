"""Host metrics from a Prometheus server that scrapes node_exporter on the brokers' hosts."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from metrics.common.errors import ConfigError
from metrics.sources.hosts.node_exporter import RULES, host_values, log_disks_problem
from metrics.sources.hosts.source import HostSample, host_names
from metrics.sources.server.api import ServerApi
from metrics.sources.server.broker_label import host_of
from metrics.sources.server.feed import FeedSpec, FeedTarget, ServerFeed


class ServedHosts:
    """Reads all hosts from one Prometheus server; a sample is one scrape that the server made.

    Args:
        api: the server.
        spec: which of its series belong to the host of which broker; brokers may share a host.
        clock: wall clock [s since the epoch].
        pause: waits for some seconds.
        log_disks: names of the disks that have log dirs; empty where they are not known.
    """

    def __init__(
        self,
        api: ServerApi,
        spec: FeedSpec,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], object] | None = None,
        log_disks: Collection[str] = (),
    ) -> None:
        self._log_disks = frozenset(log_disks)
        self._feed = ServerFeed(api, spec, clock, pause)
        self._hosts: list[str] = []
        self.brokers: Mapping[str, tuple[int, ...]] = {}
        self.machines: frozenset[str] = frozenset()

    def open(self) -> ServedHosts:
        """Find the hosts.

        Raises:
            ConfigError: the server does not answer, or does not show node_exporter of every host.
        """
        try:
            self._feed.open(lambda name: bool(RULES.candidates_for(name)))
            for target in self._feed.targets:
                target.use(RULES)
                self._require_readings(target)
        except BaseException:
            self.close()
            raise
        self._feed.read_known_series()
        names = [host_of(target.value) for target in self._feed.targets]
        self._hosts = host_names(names, [target.value for target in self._feed.targets])
        self.brokers = {
            host: target.brokers
            for host, target in zip(self._hosts, self._feed.targets, strict=True)
        }
        self.machines = frozenset(self.brokers)
        return self

    def _require_readings(self, target: FeedTarget) -> None:
        label, values = self._feed.spec.label, target.pages[-1].scrape(RULES).values
        if not host_values(values):
            raise ConfigError(
                f"the scrapes with {label.name}={target.value!r} have no series of node_exporter; "
                f"expected those of the host of broker {target.brokers[0]}; correct "
                f"{label.section}.selector"
            )
        if not_shown := log_disks_problem(values, self._log_disks):
            raise ConfigError(f"node_exporter with {label.name}={target.value!r} {not_shown}")

    def sample_all(self) -> Sequence[HostSample]:
        """The scrapes of each host since the last call; see `ServerFeed.deliver`."""
        return [
            HostSample(host, each.at_s, host_values(each.values, self._log_disks), each.error)
            for host, scrapes in zip(self._hosts, self._feed.deliver(), strict=True)
            for each in scrapes
        ]

    def close(self) -> None:
        """See `HostSource.close`."""
        self._feed.close()
