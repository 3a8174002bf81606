"""The readings of a run's trials over time, from the samples of their brokers and hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from metrics.sources.hosts.sample import HostSample
from metrics.sources.sample import BrokerSample
from metrics.trial.trial import Trial
from metrics.windows.series import SeriesPoint, host_series_points, series_points

POINTS_MAX = 60_000
"""Readings that a run keeps at most. A run with more has its drawings in the notebook `trial`
alone, which reads the samples from the tables."""


class RunSeries:
    """The readings of a run's trials over time, up to `POINTS_MAX`."""

    def __init__(self) -> None:
        self._points: dict[int, list[SeriesPoint]] = {}
        self._count = 0

    def add(
        self, trial: Trial, samples: Iterable[BrokerSample], hosts: Iterable[HostSample] = ()
    ) -> None:
        """Add what the brokers and their hosts showed in a trial; without effect once there are too
        many.
        """
        if not self.is_complete:
            return
        brokers = {each.broker_id for each in trial.evidence.brokers}
        client = trial.evidence.client
        own_hosts = {each.host for each in trial.evidence.hosts if each.brokers}
        points = [
            *series_points(samples, brokers, client.start_s),
            *host_series_points(hosts, own_hosts, client.start_s),
        ]
        self._points[trial.number] = points
        self._count += len(points) + len(client.latency_over_time)

    @property
    def is_complete(self) -> bool:
        """Whether the readings of all trials are here; false once there were too many."""
        return self._count <= POINTS_MAX

    @property
    def points(self) -> Mapping[int, Sequence[SeriesPoint]]:
        """Trial number → what its brokers showed, in the order of the drawings."""
        return self._points
