"""The pace of reading, by which a cluster serves no more than a stated rate."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

REQUESTS_PER_S = 5.0
"""Highest rate of requests [1/s]."""
LITTLE_BYTES_PER_S = 250_000.0
"""A rate that is next to no load for a broker [B/s]; little data is read in seconds at it."""


class ReadingPace:
    """The pace of requests, by bytes and by requests, for all brokers together.

    Attributes:
        throttled_s: time for which brokers asked to wait, because of a quota [s].
        bytes_read: size of all answers so far [B].

    Args:
        bytes_per_s: highest rate of answers [B/s].
        requests_per_s: highest rate of requests [1/s].
        clock: monotonic clock [s].
        pause: waits for some seconds.
    """

    def __init__(
        self,
        bytes_per_s: float,
        requests_per_s: float = REQUESTS_PER_S,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._requests_per_s = requests_per_s
        self._clock, self._pause = clock, pause
        self._next_s = clock()
        self.throttled_s = 0.0
        self.bytes_read = 0

    @property
    def next_s(self) -> float:
        """Time at which the next request may be sent, on the clock [s]."""
        return max(self._next_s, self._clock())

    def spread(self, size_bytes: float, duration_s: float) -> None:
        """Read this much evenly over a time, or faster where that is next to no load.

        The highest rate stays the bound.

        Args:
            size_bytes: size of all answers that follow [B].
            duration_s: the time [s].
        """
        even_per_s = max(LITTLE_BYTES_PER_S, size_bytes / duration_s)
        self._bytes_per_s = min(self._bytes_per_s, even_per_s)

    def wait(self) -> None:
        """Wait until the next request may be sent."""
        rest_s = self._next_s - self._clock()
        if rest_s > 0:
            self._pause(rest_s)

    def count(self, size_bytes: int, throttle_ms: int = 0, requests: int = 1) -> None:
        """Count an answer, after which the next request waits.

        Args:
            size_bytes: size of the answer [B].
            throttle_ms: time for which the broker asks to wait [ms].
            requests: number of requests that it stands for.
        """
        taken_s = max(size_bytes / self._bytes_per_s, requests / self._requests_per_s)
        self._next_s = max(self._next_s, self._clock() - taken_s) + taken_s
        self.bytes_read += size_bytes
        if throttle_ms > 0:
            self.throttled_s += throttle_ms / 1000.0
            self._next_s = max(self._next_s, self._clock() + throttle_ms / 1000.0)


def shares_of(wanted_bytes: Mapping[str, float], bytes_max: float) -> dict[str, float]:
    """Topic → the bytes to read of it, in equal shares of the whole.

    A topic that has fewer bytes than its share leaves the rest to the others.

    Args:
        wanted_bytes: topic → the bytes that it has [B].
        bytes_max: bytes to read of all topics together [B].
    """
    shares: dict[str, float] = {}
    rest = bytes_max
    ordered = sorted(wanted_bytes.items(), key=lambda each: each[1])
    for index, (topic, wanted) in enumerate(ordered):
        shares[topic] = min(wanted, rest / (len(ordered) - index))
        rest -= shares[topic]
    return shares
