"""Today's traffic of a cluster: watched for a while, or read from a Prometheus server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
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


def machines_of(opened: OpenCluster) -> dict[int, str]:
    """Broker id → advertised host, which brokers on one machine share."""
    return opened.info.hosts


def watched(
    opened: OpenCluster,
    source: MetricsSource,
    hosts: HostSource,
    window_s: float,
    link_mbit_per_s: float | None,
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
        link_mbit_per_s,
        machines_of(opened),
    )
    _require_samples(today, samples.nodes, interval_s)
    return today


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


def busiest_of_past(
    opened: OpenCluster,
    source: PrometheusServerSource,
    now_s: float,
    back_s: float,
    link_mbit_per_s: float | None,
) -> Today | None:
    """The busiest part of the past; None where the server has no counts of it.

    Raises:
        NoConclusionError: the server does not answer.
    """
    scraped_s = sample_interval_of(source, 0.0)
    step_s = max(STEP_S, STEP_SCRAPES * scraped_s)
    samples = _past(source, now_s - back_s, now_s, step_s)
    parts = _parts(samples, sorted(brokers_of(source)), step_s, link_mbit_per_s)
    if not parts:
        return None
    busiest = max(range(len(parts)), key=lambda at: _busy(parts[at][2]))
    start_s, end_s, whole = parts[busiest]
    beside = [each[2] for each in parts[max(0, busiest - 1) : busiest + 2]]
    return Today(
        source.name,
        start_s,
        end_s,
        whole,
        beside if len(beside) > 1 else (),
        machines_of(opened),
        f"today's traffic is the busiest {format_duration(step_s)} of the last "
        f"{format_duration(back_s)}, from {iso_utc(start_s)}",
    )


def past_use(
    source: PrometheusServerSource,
    now_s: float,
    share_of: Callable[[Today], float | None],
    machines: dict[int, str],
    link_mbit_per_s: float | None,
) -> History:
    """The share of the limit in use, each hour of the past eight weeks.

    Args:
        share_of: the share of the limit that a window uses; None where it is not known.

    Raises:
        NoConclusionError: the server does not answer.
    """
    samples = _past(source, now_s - HISTORY_S, now_s, HISTORY_STEP_S)
    parts = _parts(samples, sorted(brokers_of(source)), HISTORY_STEP_S, link_mbit_per_s)
    found: History = []
    for start_s, end_s, whole in parts:
        share = share_of(Today(source.name, start_s, end_s, whole, (), machines))
        if share is not None and share > 0:
            found.append(((start_s + end_s) / 2, share))
    return found


def _past(
    source: PrometheusServerSource, from_s: float, to_s: float, step_s: float
) -> list[BrokerSample]:
    try:
        return source.past_samples(from_s, to_s, step_s)
    except ScrapeError as error:
        raise NoConclusionError(
            f"the history of the brokers cannot be read: {error}; expected an answer of the "
            "Prometheus server; try again, or watch the cluster with another source"
        ) from error


def _parts(
    samples: Sequence[BrokerSample],
    brokers: Sequence[int],
    step_s: float,
    link_mbit_per_s: float | None,
) -> list[tuple[float, float, Windows]]:
    """The windows between successive steps in which all brokers have samples."""
    by_time: dict[float, list[BrokerSample]] = {}
    for each in samples:
        by_time.setdefault(each.at_s, []).append(each)
    found = []
    for from_s, to_s in pairwise(sorted(by_time)):
        if to_s - from_s > 1.5 * step_s:
            continue
        both = [*by_time[from_s], *by_time[to_s]]
        windows = broker_windows(both, brokers, from_s, to_s, step_s, link_mbit_per_s)
        if all(each.start_s is not None and each.contradiction is None for each in windows):
            found.append((from_s, to_s, Windows(windows)))
    return found


def _busy(windows: Windows) -> tuple[float, float]:
    """The busiest handlers of a window, and the input of all brokers."""
    used = Today("", 0.0, 0.0, windows).loads(Indicators())
    key = (Resource.REQUEST_HANDLERS, RATIO)
    busy = max((each[key].used for each in used.values() if key in each), default=0.0)
    return busy, sum(each.bytes_in_per_s or 0.0 for each in windows.brokers)
