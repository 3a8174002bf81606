"""Waiting until brokers are at rest, so that one load does not spoil the next trial."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from metrics.sources.sample import BrokerSample
from metrics.sources.source import MetricsSource, brokers_of
from metrics.windows.broker import BrokerWindow, broker_windows

DEADLINE_S = 60.0
LOOK_S = 1.0
"""Brokers are looked at for at least so long at a time [s]."""

CALM_IDLE = 0.85
"""Handlers with more idle time than this are at rest [ratio]. A handler notes a wait when it
ends, up to 0.3 s late, so within one look a broker without work may read down to 0.88."""
UNNOTED_S = 0.15
"""A look that begins as requests end lacks so much of the idle time of each handler in the mean,
as none of a wait is noted yet when the look ends; the next look has it [s]. Measured after 12
loads: 0.79 to 0.87 in a second of rest, and 1.0 in the next."""
IDLE_LOSS = 0.1
"""Where others use the brokers: so much less idle time than at the start is still rest [ratio]."""
DISK_GAIN = 2.0
DISK_SPARE_BYTES_PER_S = 1e6
"""Disks are quiet below so many times what they wrote at the start of the run, and below so
much more than it [B/s]."""
DISK_PATIENCE_S = 10.0
"""Disks that are all that is not quiet are waited for no longer than this [s]."""


@dataclass(frozen=True)
class Baseline:
    """How a broker is without our load; the defaults are those of one that nobody uses.

    Attributes:
        handler_idle: idle fraction of the request handlers [ratio].
        waiting_requests: in the request queue.
        under_replicated: partitions.
        replica_lag_records: of a follower, at most.
        disk_write_bytes_per_s: of the process [B/s].
    """

    handler_idle: float = 1.0
    waiting_requests: float = 0.0
    under_replicated: float = 0.0
    replica_lag_records: float = 0.0
    disk_write_bytes_per_s: float = 0.0

    @classmethod
    def of(cls, window: BrokerWindow) -> Baseline:
        """As seen in this window; what it does not show is as of a broker that nobody uses."""
        idle = 1.0 if window.handler_idle is None else min(1.0, window.handler_idle)
        return cls(
            idle,
            window.request_queue_max or 0.0,
            window.under_replicated_max or 0.0,
            window.replica_lag_max_records or 0.0,
            window.disk_write_bytes_per_s or 0.0,
        )


@dataclass(frozen=True)
class NotIdle:
    """Why a broker is not at rest; `spoils` when a trial that began now would be no answer."""

    text: str
    spoils: bool = True


@dataclass(frozen=True)
class Recovery:
    """How the wait for rest went.

    Attributes:
        duration_s: how long it took [s].
        since_s: when the brokers came to rest [s since the epoch], or None if they did not.
        unrest: what was not at rest in the end, one a broker.
    """

    duration_s: float
    since_s: float | None = None
    unrest: tuple[NotIdle, ...] = ()

    @property
    def spoils(self) -> bool:
        """True when a trial that began now would be no answer."""
        return any(each.invalidates for each in self.unrest)


def unrest(window: BrokerWindow, usual: Baseline, unnoted_s: float = 0.0) -> NotIdle | None:
    """Why this broker is not at rest, or None: it is no busier than it usually is.

    Args:
        unnoted_s: idle time of each handler that the window may lack [s].
    """
    broker, idle = f"broker {window.broker_id}", window.handler_idle
    if window.contradiction is not None:
        return NotIdle(window.contradiction)
    if window.start_s is None:
        return NotIdle(f"{broker} does not answer with its metrics")
    unnoted = unnoted_s / max(LOOK_S, (window.end_s or 0.0) - window.start_s)
    if idle is not None and idle < min(CALM_IDLE, usual.handler_idle - IDLE_LOSS) - unnoted:
        return NotIdle(f"{broker}: request handlers idle {idle:.2f}")
    gauges = (
        (window.request_queue_max, usual.waiting_requests, "requests wait for a handler"),
        (window.under_replicated_max, usual.under_replicated, "partitions under-replicated"),
        (window.replica_lag_max_records, 2 * usual.replica_lag_records, "records behind"),
    )
    for value, limit, text in gauges:
        if value is not None and value > limit:
            return NotIdle(f"{broker}: {value:.0f} {text}")
    written, usually = window.disk_write_bytes_per_s, usual.disk_write_bytes_per_s
    if written is not None and written > DISK_GAIN * usually + DISK_SPARE_BYTES_PER_S:
        text = f"{broker}: still writes {written / 1e6:.1f} MB/s to its disk"
        return NotIdle(text, invalidates=False)
    return None


def windows_between(
    source: MetricsSource, earlier: Sequence[BrokerSample], later: Sequence[BrokerSample]
) -> tuple[BrokerWindow, ...]:
    """The brokers' windows from one poll of all nodes to another, edges included."""
    samples = [*earlier, *later]
    times_s = [sample.at_s for sample in samples]
    from_s, to_s = min(times_s, default=0.0), max(times_s, default=0.0)
    return broker_windows(samples, brokers_of(source), from_s, to_s, max(LOOK_S, to_s - from_s))


def _silent(_sentence: str) -> None:
    return None


def wait_until_calm(
    source: MetricsSource,
    usual: Mapping[int, Baseline] | None = None,
    earlier: Sequence[BrokerSample] = (),
    deadline_s: float = DEADLINE_S,
    clock: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
    tell: Callable[[str], None] = _silent,
) -> Recovery:
    """Wait until every broker was at rest for a second, or until the deadline.

    Args:
        usual: broker id → how it is without our load.
        earlier: a poll of all nodes from before, which can make the first wait shorter.
        tell: hears after each look what is not at rest yet.
    """
    began_s = clock()
    earlier = earlier or source.sample_all()
    seen_s = min((sample.at_s for sample in earlier), default=began_s)
    unnoted_s = UNNOTED_S
    while True:
        pause(max(0.0, seen_s + LOOK_S - clock()))
        later = source.sample_all()
        windows = windows_between(source, earlier, later)
        found = (
            unrest(each, (usual or {}).get(each.broker_id, Baseline()), unnoted_s)
            for each in windows
        )
        restless = tuple(each for each in found if each is not None)
        waited_s = clock() - began_s
        recovery = Recovery(waited_s, None if restless else seen_s, restless)
        patience_s = deadline_s if recovery.invalidates else min(deadline_s, DISK_PATIENCE_S)
        if not restless or waited_s >= patience_s:
            return recovery
        tell(restless[0].text)
        earlier, unnoted_s = later, 0.0
        seen_s = min((sample.at_s for sample in earlier), default=clock())
