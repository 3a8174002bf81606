"""The number of connections that are open from this host to an address, as Linux shows it."""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

TABLES = (Path("/proc/thread-self/net/tcp"), Path("/proc/thread-self/net/tcp6"))
"""The kernel's tables of sockets, of the network namespace of this thread."""

_ESTABLISHED = "01"


def count_open_to(
    addresses: Collection[tuple[str, int]], tables: Iterable[Path] = TABLES
) -> int | None:
    """Count the connections from this host, of all processes, to any of these IPs and ports.

    Returns:
        None where the system does not show them.
    """
    wanted = {(_plain(ip), port) for ip, port in addresses}
    found: int | None = None
    for table in tables:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        rows = [line.split() for line in lines]
        ends = [_address(row[2]) for row in rows if len(row) > 3 and row[3] == _ESTABLISHED]
        found = (found or 0) + sum(end in wanted for end in ends)
    return found


def _address(text: str) -> tuple[str, int]:
    """IP and port of an entry such as 0100007F:2384, whose words have the host's byte order."""
    words, _, port = text.partition(":")
    data = bytes.fromhex(words)
    if sys.byteorder == "little":
        data = b"".join(data[i : i + 4][::-1] for i in range(0, len(data), 4))
    family = socket.AF_INET if len(data) == 4 else socket.AF_INET6
    return _plain(socket.inet_ntop(family, data)), int(port, 16)


def _plain(ip: str) -> str:
    """An address in its canonical form; an IPv4 address within IPv6 as IPv4."""
    found = ipaddress.ip_address(ip.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)
