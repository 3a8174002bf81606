"""Addresses of hosts, looked up once for all connections to them, and within a deadline.

The system's resolver can block without a limit, so each host is looked up on a thread of its own,
which is abandoned at the deadline.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

Address = tuple[str, int]
"""(host, port) as a broker advertises it."""


@dataclass(frozen=True)
class Resolved:
    """Result of a look-up.

    Attributes:
        found: addresses as `socket.getaddrinfo` returns them; empty when it failed.
        why: why it failed; empty otherwise.
    """

    found: tuple[Any, ...] = ()
    why: str = ""


def look_up(addresses: Collection[Address], deadline_s: float) -> dict[Address, Resolved]:
    """Look up all addresses at the same time.

    Args:
        deadline_s: time on the monotonic clock by which answers count [s].
    """
    began_s = time.monotonic()
    answers: queue.SimpleQueue[tuple[Address, Resolved]] = queue.SimpleQueue()

    def ask(address: Address) -> None:
        try:
            found = socket.getaddrinfo(*address, socket.AF_UNSPEC, socket.SOCK_STREAM)
            answers.put((address, Resolved(tuple(found))))
        except (OSError, UnicodeError) as error:  # a label of more than 63 characters
            answers.put((address, Resolved(why=str(error))))

    wanted = set(addresses)
    for address in wanted:
        name = f"redline-look-up-{address[0]}"
        threading.Thread(target=ask, args=(address,), name=name, daemon=True).start()
    resolved: dict[Address, Resolved] = {}
    while wanted - resolved.keys() and (left_s := deadline_s - time.monotonic()) > 0:
        try:
            address, answer = answers.get(timeout=left_s)
        except queue.Empty:
            break
        resolved[address] = answer
    waited_s = time.monotonic() - began_s
    silent = Resolved(why=f"no answer from the name service within {waited_s:.1f} s")
    return {address: resolved.get(address, silent) for address in wanted}
