"""A slow network interface in front of a loopback broker: a namespace, a veth pair, a shaper.

Brokers of the testbed listen on 127.0.0.1, which a namespace cannot reach. So clients in the
namespace connect to a relay at the outer end of the veth pair, and the kernel's token bucket
shapes the inner end. It needs root, iproute2 and a kernel with `tbf`.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.support.relay import Relay

Answer = TypeVar("Answer")

# RFC 2544 reserves these addresses for network benchmarks.
OUTER, INNER, PREFIX = "198.18.213.1", "198.18.213.2", 30
_CLONE_NEWNET = 0x40000000


def run(*command: str) -> None:
    """Run a command.

    Raises:
        OSError: the command failed; the message has its error output.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


@dataclass(frozen=True)
class Link:
    """A namespace behind a shaped interface, and the broker's address within it."""

    namespace: str
    address: tuple[str, int]

    def inside(self, call: Callable[[], Answer]) -> Answer:
        """Call a function in a thread of the namespace, so that its sockets belong to it."""

        def work() -> Answer:
            _enter(self.namespace)
            return call()

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(work).result()


def _enter(namespace: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/run/netns/{namespace}").open() as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            code = ctypes.get_errno()
            raise OSError(code, f"setns({namespace}): {os.strerror(code)}")


@contextmanager
def rate_limited_link(mbit_per_s: int, broker: tuple[str, int]) -> Iterator[Link]:
    """A link of this speed to the broker.

    Raises:
        OSError: the link cannot be created on this machine or by this user.
    """
    namespace, outer, inner = (f"redline-{os.getpid()}", f"rlo{os.getpid()}", f"rli{os.getpid()}")
    shaped = ("rate", f"{mbit_per_s}mbit", "burst", "64kb", "latency", "50ms")
    within = ("ip", "netns", "exec", namespace)
    run("ip", "netns", "add", namespace)
    try:
        run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", namespace)
        run("ip", "addr", "add", f"{OUTER}/{PREFIX}", "dev", outer)
        run("ip", "link", "set", outer, "up")
        run(*within, "ip", "addr", "add", f"{INNER}/{PREFIX}", "dev", inner)
        run(*within, "ip", "link", "set", inner, "up")
        run(*within, "tc", "qdisc", "add", "dev", inner, "root", "tbf", *shaped)
        relay = Relay((OUTER, 0), broker)
        try:
            yield Link(namespace, relay.start())
        finally:
            relay.close()
    finally:
        run("ip", "netns", "del", namespace)  # also deletes the veth pair
