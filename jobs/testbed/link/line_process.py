"""How a link's delay line is started, and what it is seen to do."""

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
    """The command of the delay line.

    Args:
        tuns: descriptors of the devices, the brokers' first.
        counts: where it tells what it has passed on.
        marker: by which the process is known as the testbed's.
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
    """Of the opening of a TCP connection, the shortest of a few [s].

    Args:
        namespace: file of the network namespace from which it is opened.

    Raises:
        OSError: no connection came about, or the namespace cannot be entered from here.
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
    """What the delay line has passed on, `to_brokers` and `to_generator`; empty if it told none."""
    try:
        told = json.loads(counts.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # nothing has passed yet, or the testbed ends
        return {}
    return {name: PacketCounts(**each) for name, each in told.items()}
