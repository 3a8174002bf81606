"""The sockets over which brokers serve clients. If the brokers run on this machine, the command
`ss` of iproute2 shows these sockets.
"""

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

from jobs.engine.network.socket_watch import SocketMemory, SocketTally, TcpInfo
from jobs.setup.places import child_environment
from jobs.trials.running_load import RunningLoad
from metrics.traffic.pattern import Phases
from metrics.trial.sockets import SocketCounts

LOOK_S = 1.0
"""Interval between two calls of `ss` in the window [s]; a call takes about 0.01 s of CPU time."""

_POLL_S = 0.1
_SS_TIMEOUT_S = 5.0
_SS = ("ss", "-tinmpHO", "state", "established")

_PAIR = re.compile(r"(\w+):([\w./,()%-]+)")
_OWNER = re.compile(r"pid=(\d+)")
_SKMEM = re.compile(r"skmem:\(r(\d+),rb(\d+),t\d+,tb(\d+),f\d+,w(\d+)")


class SocketEntry(NamedTuple):
    """An established connection in the output of `ss`.

    Attributes:
        local, peer: addresses of both ends, `host:port`.
        pids: ids of the processes that have the socket open.
        info: the TCP figures of the connection.
        memory: the contents of the socket's buffers; None if `ss` does not show them.
    """

    local: str
    peer: str
    pids: frozenset[int]
    info: TcpInfo
    memory: SocketMemory | None


def parse_ss(text: str) -> list[SocketEntry]:
    """Parse the output of `ss -tinmpHO state established`, which has a line per connection."""
    found = []
    for line in text.splitlines():
        fields = line.split(maxsplit=4)
        if len(fields) == 5:
            local, peer, details = _address(fields[2]), _address(fields[3]), fields[4]
            pids = frozenset(map(int, _OWNER.findall(details)))
            found.append(SocketEntry(local, peer, pids, _info(details), _memory(details)))
    return found


def _address(text: str) -> str:
    """The address without `::ffff:`, the prefix of IPv4 addresses on dual-stack sockets."""
    return re.sub(r"^\[::ffff:([0-9.]+)\]", r"\1", text)


def _info(details: str) -> TcpInfo:
    """The TCP figures of a connection; `ss` omits a figure that is 0."""
    named = dict(_PAIR.findall(details))

    def number(name: str) -> int:
        return int(named.get(name, "0"))

    def us(name: str) -> int:
        """The time in a text of `ss` such as `1200ms(75.0%)` [µs]."""
        read = re.match(r"([\d.]+)ms", named.get(name, "0ms"))
        return round(float(read[1]) * 1000) if read else 0

    mss = number("mss")
    return TcpInfo(
        rtt_us=round(float(named.get("rtt", "0").split("/")[0]) * 1000),
        rtt_min_us=round(float(named["minrtt"]) * 1000) if "minrtt" in named else None,
        cwnd_bytes=number("cwnd") * mss,
        in_flight_bytes=number("unacked") * mss,
        acked_bytes=number("bytes_acked"),
        sent_bytes=number("bytes_sent"),
        retransmitted_bytes=number("bytes_retrans"),
        received_bytes=number("bytes_received"),
        busy_us=us("busy"),
        receiver_limited_us=us("rwnd_limited"),
        send_buffer_limited_us=us("sndbuf_limited"),
    )


def _memory(details: str) -> SocketMemory | None:
    read = _SKMEM.search(details)
    if read is None:
        return None
    held, receive, send, queued = map(int, read.groups())
    return SocketMemory(receive, send, held + queued)


def client_ends(
    sockets: Iterable[SocketEntry], nodes: Mapping[int, int], brokers: Mapping[int, str]
) -> list[tuple[int, SocketEntry]]:
    """List (broker id, socket of the broker) for each connection from outside the cluster.

    Args:
        nodes: node id → process id, controllers included.
        brokers: broker id → `:port` of the listener that clients use.
    """
    listed = list(sockets)
    pids = set(nodes.values())
    inside = {each.local for each in listed if each.pids & pids}
    return [
        (broker, each)
        for broker, port in brokers.items()
        for each in listed
        if nodes.get(broker) in each.pids and each.local.endswith(port) and each.peer not in inside
    ]


def ss_commands(pids: Iterable[int]) -> list[tuple[str, ...]]:
    """The commands that list the sockets of processes, one command for each network namespace.

    The list is empty without iproute2. No command exists for a namespace that this user may not
    enter.
    """
    if shutil.which(_SS[0]) is None:
        return []
    may_enter = shutil.which("nsenter") is not None and os.geteuid() == 0
    own, found = _namespace("self"), dict[str, tuple[str, ...]]()
    for pid in pids:
        namespace = _namespace(str(pid))
        if namespace is None:
            continue
        if namespace == own:
            found[namespace] = _SS
        elif may_enter:
            found[namespace] = ("nsenter", "-t", str(pid), "-n", *_SS)
    return list(found.values())


def _namespace(process: str) -> str | None:
    """The name of a process's network namespace; None if the process has ended."""
    try:
        return str(Path(f"/proc/{process}/ns/net").readlink())
    except OSError:
        return None


def _list_sockets(commands: Iterable[tuple[str, ...]]) -> list[SocketEntry]:
    found = []
    for command in commands:
        try:
            done = subprocess.run(
                command,
                env=child_environment(),
                capture_output=True,
                text=True,
                timeout=_SS_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        found += parse_ss(done.stdout)
    return found


class BrokerSockets:
    """Counts the traffic between brokers and clients at the brokers' sockets, separately for each
    window of a load.

    Args:
        nodes: node id → process id, of all nodes on this machine.
        addresses: broker id → (host, port) that clients use.
        list_sockets: lists the sockets in the brokers' network namespaces; `ss` by default.
        clock: wall clock [s since the epoch].
    """

    def __init__(
        self,
        nodes: Mapping[int, int],
        addresses: Mapping[int, tuple[str, int]],
        list_sockets: Callable[[], list[SocketEntry]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._nodes = nodes
        self._ports = {broker: f":{port}" for broker, (_, port) in addresses.items()}
        commands = [] if list_sockets else ss_commands(nodes.values())
        self._list_sockets = list_sockets or partial(_list_sockets, commands)
        self._is_possible = bool(list_sockets or commands)
        self._clock = clock
        self._lock = threading.Lock()
        self._over: list[dict[int, SocketCounts]] = []
        self._begin()

    def _begin(self) -> None:
        self._counts: dict[int, SocketCounts] = {}
        self._tallies: dict[tuple[int, str], SocketTally] = {}
        self._began_s: float | None = None
        self._last_s = 0.0

    def watch(self, load: RunningLoad) -> AbstractContextManager[None]:
        """Count the traffic at the brokers' sockets in the windows of a load, until the returned
        context manager ends.
        """
        if not self._is_possible:
            return nullcontext()

        def look(_now_s: float) -> float | None:
            phases = load.channel.phases_now(load.pattern.phases)
            return self.count_if_due(load.channel.start_s, phases, load.load.windows)

        return load.looked_at("broker-sockets", look, 0.0)

    def count_if_due(self, start_s: float | None, phases: Phases, windows: int = 1) -> float | None:
        """Read the counters of the sockets once, if a window is open now.

        Args:
            start_s: start of the load [s since the epoch]; None until the tasks agree on a start.
            phases: phases of the load, up to the end of the first window.
            windows: number of windows of the load.

        Returns:
            The time until the next call [s]; None after the last window.
        """
        now = self._clock()
        if start_s is None or now < start_s + phases.warmup_s:
            return _POLL_S
        with self._lock:
            while now > (end_s := start_s + phases.load_s + len(self._over) * phases.measure_s):
                if len(self._over) == windows - 1:
                    return None
                self._end()
            self._count(now)
        return max(_POLL_S, min(LOOK_S, end_s - self._clock() - _POLL_S))

    def _count(self, now: float) -> None:
        is_first = self._began_s is None
        if is_first:
            self._began_s = now
        self._last_s = now
        ends = client_ends(self._list_sockets(), self._nodes, self._ports)
        now_open = Counter(broker for broker, _ in ends)
        for broker, each in ends:
            counts = self._counts.setdefault(broker, SocketCounts())
            tally = self._tallies.get((broker, each.peer))
            if tally is None:
                tally = SocketTally(counts, each.info if is_first else None)
                self._tallies[broker, each.peer] = tally
            tally.add(each.info, each.memory)
        for broker, count in now_open.items():
            counts = self._counts[broker]
            counts.connections = max(counts.connections, count)

    def _end(self) -> None:
        """Finish the counts of a window, and begin the counts of the next window."""
        took_s = self._last_s - (self._began_s or 0.0)
        for tally in self._tallies.values():
            tally.end(max(took_s, _POLL_S))
        self._over.append(self._counts)
        self._begin()

    def window_counts(self, window: int = 0) -> dict[int, SocketCounts]:
        """Broker id → the counts of its sockets in a window that has ended.

        Args:
            window: number of the window, from 0.
        """
        with self._lock:
            while len(self._over) <= window:
                self._end()
            return self._over[window]
