"""Comparison of this host's clock with the driver's clock, by round trips as in NTP.

The module needs only the standard library, because a probe sends the module to executors that may
lack this project.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable


def compare_clocks(
    ask_driver: Callable[[], float | None],
    rounds: int,
    clock: Callable[[], float] = time.monotonic,
    wall_clock: Callable[[], float] = time.time,
) -> tuple[float, float] | None:
    """Compare this host's clock with the driver's.

    The offset of the clocks is computed from the shortest of several round trips. The error of the
    offset is at most half as long as the shortest round trip.

    Args:
        ask_driver: requests the driver's time, waits for the answer, and returns the driver's time
            [s since the epoch]. The result None means that the driver does not answer; the
            comparison then ends.
        rounds: maximum number of round trips.
        clock: monotonic clock [s].
        wall_clock: clock of this host [s since the epoch].

    Returns:
        (how far this clock is ahead of the driver's, bound of the error) [s]; None if the driver
        never answered.
    """
    best: tuple[float, float] | None = None
    for _ in range(rounds):
        sent_s, sent_wall_s = clock(), wall_clock()
        driver_s = ask_driver()
        if driver_s is None:
            break
        half_s = (clock() - sent_s) / 2
        if best is None or half_s < best[1]:
            best = (sent_wall_s + half_s - driver_s, half_s)
    return best


def pinned(sock: socket.socket, certificate: str) -> ssl.SSLSocket:
    """Return the socket with TLS after the other end has proven that it has this certificate (PEM).

    Raises:
        OSError: the other end has another certificate, or none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the driver signs its certificate itself
    context.load_verify_locations(cadata=certificate)
    return context.wrap_socket(sock)
