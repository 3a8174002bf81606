"""Packets that the queues of interfaces dropped, as the kernel reports them by netlink."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.engine.network.namespaces import OWN, enter, new_namespace
from metrics.sources.hosts.proc import LocalHost
from metrics.sources.hosts.queues import Queues, dropped_in, messages_in, names_in, open_netlink

ROOT, CHILD = 0xFFFFFFFF, 0x10000
PACKETS = 100


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 7, 0) + body + bytes(-len(body) % 4)


def queue(index: int, parent: int, dropped: int) -> bytes:
    head = struct.pack("=BxHiIII", 0, 0, index, 0x8001, parent, 2)
    counts = struct.pack("=QIIIIIII", 9_000, 60, dropped, 4, 0, 0, 0, 0)
    return message(36, head + attribute(1, b"tbf\0") + attribute(3, counts))


def link(index: int, name: str) -> bytes:
    head = struct.pack("=BxHiII", 0, 1, index, 0, 0)
    return message(16, head + attribute(3, name.encode() + b"\0"))


def test_the_outermost_queue_of_each_interface_counts_the_drops_of_all_below_it() -> None:
    messages = queue(2, ROOT, 96) + queue(2, CHILD, 50) + queue(3, ROOT, 0) + link(2, "link0")
    assert dict(dropped_in(messages)) == {2: 96, 3: 0}
    assert dict(names_in(messages)) == {2: "link0"}
    assert list(dropped_in(queue(2, ROOT, 96)[:40])) == [], "a cut message"
    with pytest.raises(ValueError, match="a message of 3 bytes"):
        list(messages_in(struct.pack("=IHHII", 3, 36, 0, 0, 0)))


def test_a_kernel_without_netlink_has_no_queues() -> None:
    def refused() -> socket.socket:
        raise OSError("no such family")

    assert Queues(refused).dropped() == {}


@pytest.mark.skipif(sys.platform != "linux", reason="netlink is Linux's")
def test_the_interfaces_of_this_host_are_read_without_root() -> None:
    # Their drops are unknown, but the kernel answers, and each interface has a name.
    assert Queues().dropped().keys() <= {name for _, name in socket.if_nameindex()}


@contextmanager
def own_namespace() -> Iterator[None]:
    """Enter a new namespace whose loopback sends 10 kB/s and queues 4 kB of the rest."""
    home = os.open(OWN, os.O_RDONLY)
    new = new_namespace()
    try:
        enter(new)
        shape = ("tbf", "rate", "80kbit", "burst", "2000b", "limit", "4000b")
        for command in (
            ("ip", "link", "set", "lo", "up"),
            ("tc", "qdisc", "add", "dev", "lo", "root", *shape),
        ):
            subprocess.run(command, check=True, capture_output=True)
        yield
    finally:
        enter(home)
        os.close(home)
        os.close(new)


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("tc") is None,
    reason="a token bucket needs root and iproute2",
)
def test_a_token_bucket_that_is_full_shows_among_the_drops_of_its_interface() -> None:
    with own_namespace(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        host = LocalHost("me", network_of=lambda: None, queues=Queues(open_netlink))
        for _ in range(PACKETS):
            sender.sendto(bytes(1_000), ("127.0.0.1", 9))
        shown = subprocess.run(
            ("tc", "-s", "qdisc", "show", "dev", "lo"), check=True, capture_output=True, text=True
        ).stdout
        values = host.sample().values
        of_device = next(
            line for line in Path("/proc/thread-self/net/dev").read_text().splitlines()
            if line.strip().startswith("lo:")
        )  # fmt: skip
    dropped = values["net_send_drops:lo"]
    assert dropped >= PACKETS - 10, "the bucket holds one, and its queue three"
    assert f"(dropped {dropped:.0f}," in shown
    assert of_device.split()[12] == "0", "the interface itself counts none of them"
