"""Free ports of the loopback interface."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from contextlib import ExitStack

from jobs.testbed.errors import TestbedStartError
from jobs.testbed.model import HOST

# Below the range of ephemeral ports of Linux and macOS, so that no client takes a port between
# this check and the broker's bind. When another server takes one in between, the bind fails, and
# the supervisor starts again with other ports.
FIRST_PORT = 20_000
LAST_PORT = 31_999
_TRIES_PER_PORT = 200

PortAllocator = Callable[[int], list[int]]


def free_ports(
    count: int,
    rng: random.Random | None = None,
    between: tuple[int, int] = (FIRST_PORT, LAST_PORT),
) -> list[int]:
    """Distinct ports of `HOST` without a listener.

    Args:
        count: number of ports.
        rng: source of the candidates; the system's by default, so that testbeds which start at
            the same moment choose different ports.
        between: the first and the last candidate.

    Raises:
        TestbedStartError: too few ports are free.
    """
    rng = rng or random.SystemRandom()
    ports: list[int] = []
    with ExitStack() as held:
        for _ in range(count * _TRIES_PER_PORT):
            if len(ports) == count:
                return ports
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            port = rng.randint(*between)
            try:
                # Held until all are found, so that no port is chosen twice.
                probe.bind((HOST, port))
            except OSError:  # in use; try the next candidate
                probe.close()
                continue
            ports.append(port)
    if len(ports) == count:
        return ports
    raise TestbedStartError(
        f"only {len(ports)} of {count} ports are free on {HOST} between {between[0]} and "
        f"{between[1]}; stop other servers, or see `redline testbed status` for testbeds"
    )


def accepts(port: int, timeout_s: float, host: str = HOST) -> bool:
    """Whether a process accepts connections at this port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(timeout_s)
        return probe.connect_ex((host, port)) == 0
