"""Today's traffic of a cluster: watched for a while, or read from a Prometheus server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from jobs.cluster.opening import OpenCluster
from jobs.trials.sampling import TrialSampler
from metrics.common.errors import NoConclusionError
from metrics.features.headroom.loads import RATIO, Today, Windows, today_of
from metrics.judging.thresholds import Indicators
from metrics.sources.hosts.source import HostSource
from metrics.sources.http_access import ScrapeError
from metrics.sources.sample import BrokerSample
from metrics.sources.server.source import PrometheusServerSource
from metrics.sources.source import MetricsSource, brokers_of, sample_interval_of
from metrics.units import format_duration, iso_utc
from metrics.windows.broker import broker_windows
from metrics.windows.use import Resource

SAMPLE_INTERVAL_S = 1.0
"""Time between two samples of a watched cluster [s]."""
STEP_S, STEP_SCRAPES = 300.0, 4
"""Time between two samples of the past [s], and the least number of scrapes in it."""
HISTORY_S, HISTORY_STEP_S = 56 * 86_400.0, 3_600.0
"""The past from which growth is read, and its steps [s]."""

History = list[tuple[float, float]]
"""(time [s since the epoch], share of the limit in use)."""


@dataclass(frozen=True)
class Production:
    """The production traffic of an open cluster, from the sources of its metrics.

    Attributes:
        hosts: the metrics of the brokers' hosts.
        link_mbit_per_s: stated speed of the brokers' network interfaces.
    """

    opened: OpenCluster
    source: MetricsSource
    hosts: HostSource
    link_mbit_per_s: float | None = None

    @property
    def server(self) -> PrometheusServerSource | None:
        """The Prometheus server with the past of the brokers; None with another source."""
        return self.source if isinstance(self.source, PrometheusServerSource) else None

    def watched(
        self,
        window_s: float,
        wait: Callable[[float], object] = time.sleep,
        every_s: float = SAMPLE_INTERVAL_S,
    ) -> Today:
        """Today's traffic from samples of the next seconds.

        Args:
            wait: waits for a number of seconds.
            every_s: interval of the samples, unless the source has longer ones [s].

        Raises:
            NoConclusionError: the brokers gave too few samples.
        """
        source, hosts = self.source, self.hosts
        interval_s = sample_interval_of(source, every_s)
        with TrialSampler(source, hosts, interval_s) as sampler:
            start_s = time.time()
            wait(window_s)
            end_s = time.time()
            sampler.wait_past(end_s, 2 * interval_s + 5.0)
            samples = sampler.stop()
        today = today_of(
            source.name,
            samples.nodes,
            samples.hosts,
            sorted(brokers_of(source)),
            hosts.brokers,
            (start_s, end_s, interval_s),
            self.link_mbit_per_s,
            self.opened.info.hosts,
        )
        _require_samples(today, samples.nodes, interval_s)
        return today

    def busiest_of_past(self, now_s: float, back_s: float) -> Today | None:
        """The busiest part of the past; None where no server has counts of it.

        Raises:
            NoConclusionError: the server does not answer.
        """
        step_s = max(STEP_S, STEP_SCRAPES * sample_interval_of(self.source, 0.0))
        parts = self._past(now_s - back_s, now_s, step_s)
        if not parts:
            return None
        at, busiest = max(enumerate(parts), key=lambda each: _busy(each[1]))
        beside = [each.whole for each in parts[max(0, at - 1) : at + 2]]
        note = (
            f"today's traffic is the busiest {format_duration(step_s)} of the last "
            f"{format_duration(back_s)}, from {iso_utc(busiest.start_s)}"
        )
        return replace(busiest, parts=beside if len(beside) > 1 else (), note=note)

    def past_use(self, now_s: float, share_of: Callable[[Today], float | None]) -> History:
        """The share of the limit in use, each hour of the past eight weeks; empty without a server.

        Args:
            share_of: the share of the limit that a window uses; None where it is not known.

        Raises:
            NoConclusionError: the server does not answer.
        """
        parts = self._past(now_s - HISTORY_S, now_s, HISTORY_STEP_S)
        shares = [((each.start_s + each.end_s) / 2, share_of(each)) for each in parts]
        return [(at_s, share) for at_s, share in shares if share is not None and share > 0]

    def _past(self, start_s: float, end_s: float, step_s: float) -> list[Today]:
        """The traffic between successive steps in which all brokers have samples."""
        if self.server is None:
            return []
        try:
            samples = self.server.past_samples(start_s, end_s, step_s)
        except ScrapeError as error:
            raise NoConclusionError(
                f"the history of the brokers cannot be read: {error}; expected an answer of the "
                "Prometheus server; try again, or watch the cluster with another source"
            ) from error
        by_time: dict[float, list[BrokerSample]] = {}
        for each in samples:
            by_time.setdefault(each.at_s, []).append(each)
        found = []
        brokers, machines = sorted(brokers_of(self.server)), self.opened.info.hosts
        for from_s, to_s in pairwise(sorted(by_time)):
            if to_s - from_s > 1.5 * step_s:
                continue
            both = [*by_time[from_s], *by_time[to_s]]
            windows = broker_windows(both, brokers, from_s, to_s, step_s, self.link_mbit_per_s)
            if all(each.start_s is not None and each.contradiction is None for each in windows):
                whole = Windows(windows)
                found.append(Today(self.server.name, from_s, to_s, whole, machines=machines))
        return found


def _require_samples(today: Today, samples: Sequence[BrokerSample], interval_s: float) -> None:
    for window in today.whole.brokers:
        if window.start_s is not None and window.contradiction is None:
            continue
        own = [each.error for each in samples if each.broker_id == window.broker_id and each.error]
        why = window.contradiction or (own[-1] if own else "no sample in the window")
        raise NoConclusionError(
            f"broker {window.broker_id} shows no whole window of "
            f"{format_duration(today.end_s - today.start_s)} ({why}); expected two samples or "
            f"more, one every {interval_s:g} s; watch for longer with --window"
        )


def _busy(today: Today) -> tuple[float, float]:
    """The busiest handlers of a window, and the input of all brokers."""
    used = today.loads(Indicators())
    key = (Resource.REQUEST_HANDLERS, RATIO)
    busy = max((each[key].used for each in used.values() if key in each), default=0.0)
    return busy, sum(each.bytes_in_per_s or 0.0 for each in today.whole.brokers)
