"""Connection to the driver, and comparison of clocks with it, by round trips as in NTP.

Needs the standard library only: the probe ships this module to executors that may lack our code.
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
    """Compare this clock with the driver's.

    The shortest of several round trips counts, and half of it bounds the error.

    Args:
        ask_driver: asks for the driver's time and waits for it [s since the epoch]; None ends the
            comparison, as the driver does not answer.
        rounds: round trips at most.
        clock: monotonic [s].
        wall_clock: of this host [s since the epoch].

    Returns:
        (by how much this clock is ahead, bound of the error) [s]; None when the driver never
        answered.
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
    """The socket with TLS, whose other end has the key of this certificate (PEM).

    Raises:
        OSError: it has another certificate, or none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the certificate is the driver's own, not an authority's
    context.load_verify_locations(cadata=certificate)
    return context.wrap_socket(sock)
