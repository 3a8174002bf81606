"""The process of a link's delay line: its command, its packet counts and its round trip."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from jobs.config.link import Link
from jobs.engine.network.namespaces import inside
from jobs.testbed.link.delay_line import DelayLineOptions
from jobs.testbed.link.packet_delay import PacketCounts
from metrics.common.errors import ConfigError

_TRIES = 3
_TIMEOUT_S = 4.0
"""Twice the longest round trip [s]."""


def line_command(link: Link, tuns: Sequence[int], counts: Path, marker: str) -> list[str]:
    """The command line of the delay line.

    Args:
        tuns: descriptors of the TUN devices, the brokers' first.
        counts: file for its packet counts.
        marker: argument that marks the process as the testbed's.
    """
    order = DelayLineOptions(
        brokers=tuns[0],
        generator=tuns[1],
        delay_s=link.delay_s,
        jitter_s=link.jitter_s,
        loss=link.loss_share,
        held_bytes=link.held_bytes,
        mtu=link.mtu,
        seed=link.seed,
        counts=str(counts),
    )
    module = "jobs.testbed.link.delay_line"
    return [sys.executable, "-m", module, json.dumps(asdict(order)), marker]


def round_trip_s(namespace: str, host: str, port: int) -> float:
    """The shortest time of a few TCP handshakes [s].

    Args:
        namespace: file of the network namespace from which the connections are opened.

    Raises:
        OSError: no connection is possible, or this process cannot enter the namespace.
    """
    took_s = []
    try:
        with inside(namespace):
            for _ in range(_TRIES):
                began_s = time.monotonic()
                socket.create_connection((host, port), _TIMEOUT_S).close()
                took_s.append(time.monotonic() - began_s)
    except ConfigError as error:
        raise OSError(str(error)) from error
    return min(took_s)


def read_counts(counts: Path) -> dict[str, PacketCounts]:
    """Direction, `to_brokers` or `to_generator` → its packet counts; empty without counts."""
    try:
        counted = json.loads(counts.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no packet has passed yet, or the testbed is ending
        return {}
    return {name: PacketCounts(**each) for name, each in counted.items()}
