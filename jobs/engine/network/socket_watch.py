"""Watch of some sockets of a task, at the edges of the measured window and between them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import islice, zip_longest

from jobs.engine.network.sockets import Channel
from jobs.engine.network.tcp_info import SocketMemory, TcpInfo, socket_memory, tcp_info
from metrics.trial.sockets import SocketCounts

WATCHED_MAX = 64
"""Number of watched sockets of a task at most: a look at one takes some microseconds."""

MEMORY_EVERY = 4
"""Interval of the looks that also read the slowly changing buffers, as the last look does."""

_COUNTERS = (
    "sent_bytes",
    "retransmitted_bytes",
    "received_bytes",
    "busy_us",
    "receiver_limited_us",
    "send_buffer_limited_us",
)
"""Counters that `TcpInfo` and `SocketCounts` both have."""


class SocketTally:
    """Tally of the sockets of one connection in a window, in which it may be opened again.

    Args:
        counts: counts of the broker, to which the tally adds.
        first: figures of the socket at the window's start; None for one opened later.
    """

    __slots__ = ("_acked_bytes", "_counts", "_first", "_is_counted", "_last")

    def __init__(self, counts: SocketCounts, first: TcpInfo | None) -> None:
        self._counts = counts
        self._first = self._last = first
        self._acked_bytes = 0
        self._is_counted = False

    def add(self, info: TcpInfo, memory: SocketMemory | None) -> None:
        """Add a look at the socket."""
        self._last = info
        counts = self._counts
        counts.watched += not self._is_counted
        self._is_counted = True
        counts.looks += 1
        counts.rtt_min_us = _chosen(min, counts.rtt_min_us, info.rtt_min_us)
        counts.rtt_sum_us += info.rtt_us
        counts.cwnd_sum_bytes += info.cwnd_bytes
        counts.in_flight_sum_bytes += info.in_flight_bytes
        counts.in_flight_max_bytes = max(counts.in_flight_max_bytes, info.in_flight_bytes)
        if memory is not None:
            for name, size in memory._asdict().items():
                setattr(counts, name, _chosen(max, getattr(counts, name), size))

    def renew(self) -> None:
        """Count a lost socket up to its last look."""
        self._settle()
        self._first = None

    def end(self, duration_s: float) -> None:
        """End the window, which has lasted so long [s]."""
        self._settle()
        per_s = self._acked_bytes / duration_s
        self._counts.fastest_bytes_per_s = max(self._counts.fastest_bytes_per_s, per_s)

    def _settle(self) -> None:
        first, last, counts = self._first, self._last, self._counts
        if last is None:
            return
        self._acked_bytes += last.acked_bytes - (first.acked_bytes if first else 0)
        for name in _COUNTERS:
            grown = _growth(name, first, last)
            if grown is not None:
                setattr(counts, name, (getattr(counts, name) or 0) + grown)
        self._last = None


class _Watched:
    """A watched connection, with the socket that it had at the last look."""

    __slots__ = ("broker", "channel", "tally", "transport")

    def __init__(self, broker: int, channel: Channel, counts: SocketCounts) -> None:
        self.broker = broker
        self.channel = channel
        self.transport = channel.transport
        first = None if self.transport is None else tcp_info(self.transport.sock)
        self.tally = SocketTally(counts, first)


class SocketWatch:
    """A watch of some of a task's connections, always the same, and as many to each broker.

    Args:
        channels: (broker id, connection) of all connections.
        unanswered: returns the number of a connection's unanswered requests, and whether batches
            wait until one of them is answered.
    """

    def __init__(
        self,
        channels: Sequence[tuple[int, Channel]],
        unanswered: Callable[[Channel], tuple[int, bool]] = lambda _: (0, False),
    ) -> None:
        self._unanswered = unanswered
        self._open = Counter(broker for broker, _ in channels)
        by_broker: dict[int, list[tuple[int, Channel]]] = defaultdict(list)
        for each in channels:
            by_broker[each[0]].append(each)
        in_turns = (each for turn in zip_longest(*by_broker.values()) for each in turn if each)
        self._panel = list(islice(in_turns, WATCHED_MAX))
        self._watched: list[_Watched] = []
        self._counts: dict[int, SocketCounts] = {}
        self._looks = 0

    def begin(self) -> None:
        """Begin the window."""
        self._counts = {broker: SocketCounts(count) for broker, count in self._open.items()}
        self._watched = [
            _Watched(broker, channel, self._counts[broker]) for broker, channel in self._panel
        ]
        self._looks = 0

    def look(self) -> None:
        """Look at all watched sockets; does nothing before a window begins."""
        sees_memory = self._looks % MEMORY_EVERY == 0
        self._looks += 1
        for each in self._watched:
            self._look_at(each, sees_memory)

    def end(self, duration_s: float) -> dict[int, SocketCounts]:
        """End the window; returns broker id → counts, empty where the system reports none.

        Args:
            duration_s: length of the window [s].
        """
        self._looks = 0
        self.look()
        for each in self._watched:
            each.tally.end(duration_s)
        self._watched = []
        return {broker: counts for broker, counts in self._counts.items() if counts.looks}

    def _look_at(self, each: _Watched, sees_memory: bool) -> None:
        transport = each.channel.transport
        if transport is not each.transport:
            each.tally.renew()
            each.transport = transport
        info = None if transport is None else tcp_info(transport.sock)
        if transport is None or info is None:
            return
        each.tally.add(info, socket_memory(transport.sock) if sees_memory else None)
        requests, waits = self._unanswered(each.channel)
        counts = self._counts[each.broker]
        counts.waiting_looks += waits
        counts.unanswered_max = max(counts.unanswered_max, requests)


def _growth(name: str, first: TcpInfo | None, last: TcpInfo) -> int | None:
    end: int | None = getattr(last, name)
    begin: int = getattr(first, name) or 0 if first else 0
    return None if end is None else end - begin


def _chosen(choose: Callable[..., int], known: int | None, seen: int | None) -> int | None:
    if known is None or seen is None:
        return seen if known is None else known
    return choose(known, seen)
