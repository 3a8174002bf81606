"""Looks at some sockets of a task: at the edges of the measured window and between them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import islice, zip_longest

from jobs.engine.network.sockets import Channel
from jobs.engine.network.tcp_info import TcpInfo, socket_memory, tcp_info
from metrics.trial.sockets import SocketCounts

WATCHED_MAX = 64
"""Sockets of a task that are looked at: a look at one takes some microseconds."""

MEMORY_EVERY = 4
"""Buffers change slowly: so many looks of a window see them once, and its last one does."""

_COUNTERS = (
    "sent_bytes",
    "retransmitted_bytes",
    "received_bytes",
    "busy_us",
    "receiver_limited_us",
    "send_buffer_limited_us",
)
"""What `TcpInfo` and `SocketCounts` both have, and grows."""


class _Seen:
    """One connection over a window: what its sockets did, as it may be opened again.

    Attributes:
        first: of the socket at the window's start; None of one that was opened in it.
        last: of the same socket at the newest look.
        acked_bytes: of those that it had before in the window [B].
    """

    __slots__ = ("acked_bytes", "broker", "channel", "first", "is_counted", "last", "transport")

    def __init__(self, broker: int, channel: Channel) -> None:
        self.broker = broker
        self.channel = channel
        self.transport = channel.transport
        self.first = self.last = None if self.transport is None else tcp_info(self.transport.sock)
        self.acked_bytes = 0
        self.is_counted = False


class SocketWatch:
    """Some of a task's sockets, always the same, as many of each broker.

    Args:
        channels: (broker id, connection) of all of them.
        unanswered: the requests of a connection without an answer, and whether something waits
            to be sent until one of them has it.
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
        self._seen: list[_Seen] = []
        self._counts: dict[int, SocketCounts] = {}
        self._looks = 0

    def begin(self) -> None:
        """The window begins."""
        self._counts = {broker: SocketCounts(count) for broker, count in self._open.items()}
        self._seen = [_Seen(*each) for each in self._panel]
        self._looks = 0

    def look(self) -> None:
        """See how they are; nothing before a window begins."""
        sees_memory = self._looks % MEMORY_EVERY == 0
        self._looks += 1
        for seen in self._seen:
            self._look_at(seen, sees_memory)

    def end(self, duration_s: float) -> dict[int, SocketCounts]:
        """The window is over: broker id → what was seen; empty where the system tells nothing.

        Args:
            duration_s: of the window [s].
        """
        self._looks = 0
        self.look()
        for seen in self._seen:
            self._settle(seen)
            counts = self._counts[seen.broker]
            per_s = seen.acked_bytes / duration_s
            counts.fastest_bytes_per_s = max(counts.fastest_bytes_per_s, per_s)
        self._seen = []
        return {broker: counts for broker, counts in self._counts.items() if counts.looks}

    def _look_at(self, seen: _Seen, sees_memory: bool) -> None:
        transport = seen.channel.transport
        if transport is not seen.transport:
            self._settle(seen)
            seen.transport, seen.first = transport, None
        info = None if transport is None else tcp_info(transport.sock)
        if transport is None or info is None:
            return
        seen.last = info
        counts = self._counts[seen.broker]
        counts.watched += not seen.is_counted
        seen.is_counted = True
        counts.looks += 1
        requests, waits = self._unanswered(seen.channel)
        counts.waiting_looks += waits
        counts.unanswered_max = max(counts.unanswered_max, requests)
        counts.rtt_min_us = _chosen(min, counts.rtt_min_us, info.rtt_min_us)
        counts.rtt_sum_us += info.rtt_us
        counts.cwnd_sum_bytes += info.cwnd_bytes
        counts.in_flight_sum_bytes += info.in_flight_bytes
        counts.in_flight_max_bytes = max(counts.in_flight_max_bytes, info.in_flight_bytes)
        memory = socket_memory(transport.sock) if sees_memory else None
        if memory is not None:
            for name, size in memory._asdict().items():
                setattr(counts, name, _chosen(max, getattr(counts, name), size))

    def _settle(self, seen: _Seen) -> None:
        """Count what a socket did between the window's start, or its own, and its last look."""
        first, last, counts = seen.first, seen.last, self._counts[seen.broker]
        if last is None:
            return
        seen.acked_bytes += last.acked_bytes - (first.acked_bytes if first else 0)
        for name in _COUNTERS:
            grown = _growth(name, first, last)
            if grown is not None:
                setattr(counts, name, (getattr(counts, name) or 0) + grown)
        seen.last = None


def _growth(name: str, first: TcpInfo | None, last: TcpInfo) -> int | None:
    end: int | None = getattr(last, name)
    begin: int = getattr(first, name) or 0 if first else 0
    return None if end is None else end - begin


def _chosen(choose: Callable[..., int], known: int | None, seen: int | None) -> int | None:
    if known is None or seen is None:
        return seen if known is None else known
    return choose(known, seen)
