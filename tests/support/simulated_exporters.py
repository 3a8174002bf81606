"""Many exporters of brokers and of hosts in one process on loopback.

A broker's page is that of a broker of Kafka 4.1.2 with the exporter's rules `kafka-kraft`, scraped
after some load on 30 partitions (tests/data/exporter). A host's page has the form, the length and
the number of series of node_exporter's default collectors for a host of 16 cores, 4 disks and 2
interfaces, including the series that the product reads. Counters grow with time. All exporters
send the same page, so serving costs little compared with scraping.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

_PAGE = Path(__file__).parent.parent / "data/exporter/kafka-kraft-4.1.2.txt.gz"
_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n\r\n"
)
_COUNTS = "/counts"
_IDLE = "requesthandleravgidlepercent_count"
_COUNTER = re.compile(r"^(?!#)\S*(?:_count|_sum|_total|_created)(?:\{.*\})? ")
_TICK_S = 0.25
"""Time for which all exporters send the same page [s]."""
_CORES, _DISKS, _INTERFACES = 16, 4, 2


def _host_page() -> str:
    """A page of node_exporter, with one series per line and its comments."""
    rows: list[tuple[str, Sequence[str], float]] = []
    modes = ("idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user")
    per_cpu = [f'{{cpu="{cpu}",mode="{mode}"}}' for cpu in range(_CORES) for mode in modes]
    rows.append(("node_cpu_seconds_total", per_cpu, 0.125))
    for name in ("running_seconds_total", "waiting_seconds_total", "timeslices_total"):
        per_core = [f'{{cpu="{cpu}"}}' for cpu in range(_CORES)]
        rows.append((f"node_schedstat_{name}", per_core, 0.5))
    disks = [f'{{device="nvme{each}n1"}}' for each in range(_DISKS)]
    of_disks = (
        "reads_completed", "reads_merged", "read_bytes", "read_time_seconds", "writes_completed",
        "writes_merged", "written_bytes", "write_time_seconds", "io_time_seconds",
        "io_time_weighted_seconds", "discards_completed", "discards_merged", "discarded_sectors",
        "discard_time_seconds", "flush_requests", "flush_requests_time_seconds",
    )  # fmt: skip
    rows += [(f"node_disk_{name}_total", disks, 0.5) for name in of_disks]
    cards = [f'{{device="eth{each}"}}' for each in range(_INTERFACES)]
    for way in ("receive", "transmit"):
        for name in ("bytes", "compressed", "drop", "errs", "fifo", "frame", "packets"):
            moves = 1e6 if name in ("bytes", "packets") else 0.0
            rows.append((f"node_network_{way}_{name}_total", cards, moves))
    rows.append(("node_network_speed_bytes", cards, 3.125e9))
    pages = ("pswpin", "pswpout", "oom_kill", "pgfault", "pgmajfault", "pgpgin", "pgpgout")
    rows += [(f"node_vmstat_{name}", [""], 0.0) for name in pages]
    memory = ("MemTotal", "MemAvailable", "Cached", *(f"Other{each}" for each in range(47)))
    rows += [(f"node_memory_{name}_bytes", [""], 64e9) for name in memory]
    tcp = ("Tcp_OutSegs", "Tcp_RetransSegs", "TcpExt_ListenOverflows")
    rows += [(f"node_netstat_{name}", [""], 0.0) for name in tcp]
    rows += [(f"node_netstat_Other{each}_Count", [""], 1.0) for each in range(40)]
    for resource in ("cpu", "io", "memory"):
        rows.append((f"node_pressure_{resource}_waiting_seconds_total", [""], 0.01))
    rows.append(("node_procs_running", [""], 2.0))
    for each in range(30):
        mounts = [f'{{device="nvme{disk}n1",fstype="xfs"}}' for disk in range(_DISKS)]
        rows.append((f"node_filesystem_other{each}_bytes", mounts, 1e12))
    collectors = [f'{{collector="collector{each}"}}' for each in range(45)]
    rows.append(("node_scrape_collector_duration_seconds", collectors, 0.001))
    rows.append(("node_scrape_collector_success", collectors, 1.0))
    rows += [(f"go_memstats_other{each}_bytes", [""], 1e6) for each in range(40)]
    lines = []
    for name, labels, value in rows:
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP {name} What the field {name} says.", f"# TYPE {name} {kind}"]
        lines += [f"{name}{label} {value!r}" for label in labels]
    return "\n".join(lines) + "\n"


class _Page:
    """A page whose counters grow; a number in the template is the growth per second."""

    def __init__(self, text: str, names: frozenset[str]) -> None:
        self._parts: list[tuple[str, float | None]] = []
        for line in text.splitlines():
            series, _, number = line.rpartition(" ")
            if names and not line.startswith("#") and series.partition("{")[0] not in names:
                continue
            if _COUNTER.match(line):
                per_s = 6e8 if _IDLE in series else float(number)
                self._parts.append((f"{series} ", per_s))
            elif not line.startswith("#") or not names:
                self._parts.append((line, None))
        self._at_s, self._answer = 0.0, b""

    def answer(self) -> bytes:
        """The HTTP response with the current values."""
        now_s = time.time()
        if now_s - self._at_s > _TICK_S:
            up_s = now_s % 1e6
            body = "\n".join(
                text if per_s is None else f"{text}{per_s * up_s!r}" for text, per_s in self._parts
            )
            page = body.encode() + b"\n"
            self._at_s, self._answer = now_s, _ANSWER % len(page) + page
        return self._answer


class _Server:
    """The pages of all exporters, and the numbers of scrapes and connections."""

    def __init__(self) -> None:
        broker = gzip.decompress(_PAGE.read_bytes()).decode()
        self._texts = {"broker": broker, "host": _host_page()}
        self._pages: dict[tuple[str, str], _Page] = {}
        self.counts = {"broker": 0, "host": 0, "connections": 0}

    def answer(self, kind: str, target: str) -> bytes:
        """The response to a scrape, or to a request for the counts.

        Only exporters of brokers filter by `name[]`.
        """
        if target == _COUNTS:
            counts = json.dumps(self.counts).encode()
            return _ANSWER % len(counts) + counts
        self.counts[kind] += 1
        key = (kind, target if kind == "broker" else "")
        if key not in self._pages:
            names = frozenset(parse_qs(urlsplit(key[1]).query).get("name[]", ()))
            self._pages[key] = _Page(self._texts[kind], names)
        return self._pages[key].answer()


class _Connection(asyncio.Protocol):
    """A persistent connection whose requests are answered one by one."""

    def __init__(self, server: _Server, kind: str) -> None:
        self._server, self._kind, self._received = server, kind, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._server.counts["connections"] += 1
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            target = head.split(b" ", 2)[1].decode()
            self._transport.write(self._server.answer(self._kind, target))


async def _serve(brokers: int, hosts: int) -> None:
    loop, server = asyncio.get_running_loop(), _Server()
    ports = []
    for kind, count in (("broker", brokers), ("host", hosts)):
        for _ in range(count):

            def made(kind: str = kind) -> _Connection:
                return _Connection(server, kind)

            listening = await loop.create_server(made, "127.0.0.1", 0, backlog=8)
            ports.append(listening.sockets[0].getsockname()[1])
    sys.stdout.write(" ".join(map(str, ports)) + "\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)  # returns when the parent process ends


def fetch_counts(port: int) -> dict[str, int]:
    """Numbers of scrapes of brokers and of hosts, and of connections."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{_COUNTS}") as answer:
        counts: dict[str, int] = json.load(answer)
    return counts


@contextmanager
def simulated_exporters(brokers: int, hosts: int) -> Iterator[tuple[list[int], list[int]]]:
    """Ports on 127.0.0.1 of these numbers of exporters of brokers and of hosts."""
    command = [sys.executable, "-m", __name__, str(brokers), str(hosts)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            ports = list(map(int, process.stdout.readline().split()))
            assert len(ports) == brokers + hosts, "the exporters did not start"
            yield ports[:brokers], ports[brokers:]
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(_serve(*map(int, sys.argv[1:])))
