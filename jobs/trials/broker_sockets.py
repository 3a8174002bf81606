"""The brokers' ends of the clients' connections, on a testbed: what `ss` of iproute2 shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

from jobs.engine.network.socket_watch import SocketTally
from jobs.engine.network.tcp_info import SocketMemory, TcpInfo
from jobs.setup.children import environment
from jobs.trials.control_server import TaskChannel
from jobs.trials.watching import watching
from metrics.traffic.pattern import Phases
from metrics.trial.sockets import SocketCounts

LOOK_S = 1.0
"""Between two looks in the window [s]; `ss` takes some hundredths of a second of CPU."""

_POLL_S = 0.1
_SS_TIMEOUT_S = 5.0
_SS = ("ss", "-tinmpHO", "state", "established")

_PAIR = re.compile(r"(\w+):([\w./,()%-]+)")
_OWNER = re.compile(r"pid=(\d+)")
_SKMEM = re.compile(r"skmem:\(r(\d+),rb(\d+),t\d+,tb(\d+),f\d+,w(\d+)")


class SeenSocket(NamedTuple):
    """An established connection as `ss` shows it.

    Attributes:
        local, peer: addresses, `host:port`.
        pids: of the processes that have it.
    """

    local: str
    peer: str
    pids: frozenset[int]
    info: TcpInfo
    memory: SocketMemory | None


def seen_sockets(text: str) -> list[SeenSocket]:
    """What `ss -tinmpHO state established` wrote, a line each; others than TCP's are left out."""
    found = []
    for line in text.splitlines():
        fields = line.split(maxsplit=4)
        if len(fields) == 5:
            local, peer, told = _address(fields[2]), _address(fields[3]), fields[4]
            pids = frozenset(map(int, _OWNER.findall(told)))
            found.append(SeenSocket(local, peer, pids, _info(told), _memory(told)))
    return found


def _address(text: str) -> str:
    """Without what a dual-stack socket puts before an IPv4 address."""
    return re.sub(r"^\[::ffff:([0-9.]+)\]", r"\1", text)


def _info(told: str) -> TcpInfo:
    """`ss` leaves out what is 0."""
    named = dict(_PAIR.findall(told))

    def number(name: str) -> int:
        return int(named.get(name, "0"))

    def us(name: str) -> int:
        """`1200ms(75.0%)`: a time that the kernel counts in µs [µs]."""
        read = re.match(r"([\d.]+)ms", named.get(name, "0ms"))
        return round(float(read[1]) * 1000) if read else 0

    mss = number("mss")
    resent = number("bytes_retrans")
    sent = number("bytes_sent")
    unacked = number("unacked") * mss
    return TcpInfo(
        rtt_us=round(float(named.get("rtt", "0").split("/")[0]) * 1000),
        rtt_min_us=round(float(named["minrtt"]) * 1000) if "minrtt" in named else None,
        cwnd_bytes=number("cwnd") * mss,
        in_flight_bytes=unacked,
        acked_bytes=number("bytes_acked"),
        sent_bytes=sent,
        retransmitted_bytes=resent,
        received_bytes=number("bytes_received"),
        busy_us=us("busy"),
        receiver_limited_us=us("rwnd_limited"),
        send_buffer_limited_us=us("sndbuf_limited"),
    )


def _memory(told: str) -> SocketMemory | None:
    read = _SKMEM.search(told)
    if read is None:
        return None
    held, receive, send, queued = map(int, read.groups())
    return SocketMemory(receive, send, held + queued)


def client_ends(
    sockets: Iterable[SeenSocket], nodes: Mapping[int, int], brokers: Mapping[int, str]
) -> list[tuple[int, SeenSocket]]:
    """(broker id, its end) of all connections that come from no node of the cluster.

    Args:
        nodes: node id → process id, of controllers too.
        brokers: broker id → `:port` of the listener that clients use.
    """
    listed = list(sockets)
    pids = set(nodes.values())
    ours = {each.local for each in listed if each.pids & pids}
    return [
        (broker, each)
        for broker, port in brokers.items()
        for each in listed
        if nodes.get(broker) in each.pids and each.local.endswith(port) and each.peer not in ours
    ]


def ss_commands(pids: Iterable[int]) -> list[tuple[str, ...]]:
    """What shows the sockets of these processes, once for each network namespace.

    Nothing where there is no iproute2, and of a namespace that is not ours nothing without the
    right to enter it.
    """
    if shutil.which(_SS[0]) is None:
        return []
    may_enter = shutil.which("nsenter") is not None and os.geteuid() == 0
    ours, found = _namespace("self"), dict[str, tuple[str, ...]]()
    for pid in pids:
        namespace = _namespace(str(pid))
        if namespace is None:
            continue
        if namespace == ours:
            found[namespace] = _SS
        elif may_enter:
            found[namespace] = ("nsenter", "-t", str(pid), "-n", *_SS)
    return list(found.values())


def _namespace(process: str) -> str | None:
    """What tells network namespaces apart; None of a process that has ended."""
    try:
        return str(Path(f"/proc/{process}/ns/net").readlink())
    except OSError:
        return None


def _shown(commands: Iterable[tuple[str, ...]]) -> list[SeenSocket]:
    found = []
    for command in commands:
        try:
            done = subprocess.run(
                command,
                env=environment(),
                capture_output=True,
                text=True,
                timeout=_SS_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        found += seen_sockets(done.stdout)
    return found


class BrokerSockets:
    """Looks at the brokers' ends during a window, or during windows in a row.

    Args:
        nodes: node id → process id, of all nodes of the testbed.
        addresses: broker id → (host, port) that clients use.
        show: the sockets of all brokers' namespaces, now.
        clock: wall clock [s since the epoch].
    """

    def __init__(
        self,
        nodes: Mapping[int, int],
        addresses: Mapping[int, tuple[str, int]],
        show: Callable[[], list[SeenSocket]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._nodes = nodes
        self._ports = {broker: f":{port}" for broker, (_, port) in addresses.items()}
        commands = [] if show else ss_commands(nodes.values())
        self._show = show or partial(_shown, commands)
        self._is_possible = bool(show or commands)
        self._clock = clock
        self._lock = threading.Lock()
        self._over: list[dict[int, SocketCounts]] = []
        self._begin()

    def _begin(self) -> None:
        self._counts: dict[int, SocketCounts] = {}
        self._tallies: dict[tuple[int, str], SocketTally] = {}
        self._began_s: float | None = None
        self._last_s = 0.0

    def watch(
        self, channel: TaskChannel, phases: Phases, windows: int = 1
    ) -> AbstractContextManager[None]:
        """Look on while a load runs, at its windows only.

        Args:
            phases: of the load with its first window; the others are as long.
        """
        if not self._is_possible:
            return nullcontext()
        return watching("broker-sockets", lambda: self.step(channel.start_s, phases, windows))

    def step(self, start_s: float | None, phases: Phases, windows: int = 1) -> float | None:
        """Look if it is time to; says after how long to come again, None after the windows [s].

        Args:
            start_s: of the load [s since the epoch]; None until it is agreed on.
        """
        now = self._clock()
        if start_s is None or now < start_s + phases.warmup_s:
            return _POLL_S
        with self._lock:
            while now > (end_s := start_s + phases.load_s + len(self._over) * phases.measure_s):
                if len(self._over) == windows - 1:
                    return None
                self._end()
            self._look(now)
        return max(_POLL_S, min(LOOK_S, end_s - self._clock() - _POLL_S))

    def _look(self, now: float) -> None:
        is_first = self._began_s is None
        if is_first:
            self._began_s = now
        self._last_s = now
        ends = client_ends(self._show(), self._nodes, self._ports)
        now_open = Counter(broker for broker, _ in ends)
        for broker, each in ends:
            counts = self._counts.setdefault(broker, SocketCounts())
            tally = self._tallies.get((broker, each.peer))
            if tally is None:
                tally = SocketTally(counts, each.info if is_first else None)
                self._tallies[broker, each.peer] = tally
            tally.see(each.info, each.memory)
        for broker, count in now_open.items():
            counts = self._counts[broker]
            counts.connections = max(counts.connections, count)

    def _end(self) -> None:
        """A window is over: what is looked at from now on is of the next."""
        took_s = self._last_s - (self._began_s or 0.0)
        for tally in self._tallies.values():
            tally.end(max(took_s, _POLL_S))
        self._over.append(self._counts)
        self._begin()

    def seen(self, window: int = 0) -> dict[int, SocketCounts]:
        """Broker id → its ends between the first look and the last of a window that is over.

        Args:
            window: counted from 0.
        """
        with self._lock:
            while len(self._over) <= window:
                self._end()
            return self._over[window]
