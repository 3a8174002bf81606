"""Facts that a task collects on an executor; Spark sends this module to executors as source code.

An executor may lack kafka-redline's wheel or any package, so this module needs only the standard
library. Modules of kafka-redline that this module imports are sent as source code, too
(`jobs.checks.survey.shipped_as_source`). Each error is returned as data. An exception would make
Spark repeat the stage, and the user would see a Java stack trace.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.resources
import json
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from jobs.engine.task.clock_comparison import compare_clocks, pinned

CLOCK_ROUNDS = 8
"""Number of round trips of a clock comparison. The shortest round trip has the smallest error."""
_LINE_BYTES = 4_096
_TCP_INFO, _RTT_OFFSET = 11, 68  # tcpi_rtt in include/uapi/linux/tcp.h


def probe_task(order: str, _ids: Iterable[int]) -> Iterator[str]:
    """One task of the survey's barrier stage.

    Args:
        order: the input of the task, as JSON from `jobs.checks.survey.probe_order`.

    Yields:
        The facts as one JSON text.
    """
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    places = [info.address for info in context.getTaskInfos()]
    task = context.partitionId()
    hosts = [place.rpartition(":")[0] for place in places]
    # All tasks on a host use the same network, so only the first task on each host probes brokers.
    is_first = hosts.index(hosts[task]) == task
    yield json.dumps(facts(json.loads(order), task, places[task], is_first))


def facts(order: Mapping[str, Any], task: int, place: str, is_first: bool) -> dict[str, Any]:
    """The requested facts, with the field names of `jobs.checks.survey.ExecutorFacts`."""
    packages = {name: package(name, module) for name, module in order["packages"].items()}
    code, _ = _or_error(partial(digest, order["code"]))
    _, trouble = _or_error(lambda: [*map(importlib.import_module, order["engine"])])
    clock, channel_trouble = _or_error(
        partial(clock_offset, order["clock"], task, order["timeout_s"])
    )
    found: dict[str, Any] = {
        "host": socket.gethostname(),
        "executor": place,
        "packages": {name: version for name, (version, _) in packages.items()},
        "package_errors": {name: error for name, (_, error) in packages.items() if error},
        "code": code,
        "trouble": trouble,
        "channel_trouble": channel_trouble,
        "unreadable": [path for path in order["files"] if not os.access(path, os.R_OK)],
        **(clock or {}),
    }
    if is_first:
        probe = partial(links_of, order["brokers"], order["timeout_s"])
        namespace = order.get("network_namespace")
        found |= _from_within(namespace, probe, order["brokers"]) if namespace else probe()
    return found


def package(name: str, module: str) -> tuple[str | None, str]:
    """A package's version and the error of the import; the error is empty if the import
    succeeds.
    """

    def read() -> str:
        importlib.import_module(module)
        return importlib.metadata.version(name)

    return _or_error(read)


def digest(packages: Iterable[str]) -> str:
    """A digest of the packages' source files. A checkout and a wheel of the same code have equal
    digests.

    Raises:
        ImportError: a package is missing.
    """
    whole = hashlib.sha256()
    for name in packages:
        folder = importlib.resources.files(importlib.import_module(name))
        entries = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".py")}
        for file_name in sorted(entries):
            whole.update(f"{name}/{file_name}\n".encode())
            whole.update(entries[file_name].read_bytes())
    return whole.hexdigest()[:12]


def links_of(brokers: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """Facts about the network links between this host and the brokers."""
    links = probe_brokers(brokers, timeout_s)
    return {
        "unreachable": {broker: why for broker, (why, _) in links.items() if why},
        "round_trip_ms": {broker: ms for broker, (_, ms) in links.items() if ms is not None},
        "kernel_buffers": kernel_buffers(),
    }


def probe_brokers(
    brokers: Mapping[str, Any], timeout_s: float
) -> dict[str, tuple[str, float | None]]:
    """Broker id → (reason why no connection from this host succeeds, round trip time [ms]).

    The reason is an empty text if a connection succeeds. The kernel measures the round trip time
    with the first packets of a connection; the time is None if the kernel does not report it.
    """
    with ThreadPoolExecutor(max_workers=min(32, max(1, len(brokers)))) as pool:
        tried = pool.map(lambda place: _try(place, timeout_s), brokers.values())
        return dict(zip(brokers, tried, strict=True))


def kernel_buffers(settings: Path = Path("/proc/sys/net")) -> dict[str, list[int]]:
    """Kernel parameter → limits of socket buffers [B]. Unreadable parameters are left out."""
    found = {}
    for name in ("ipv4/tcp_rmem", "ipv4/tcp_wmem", "core/rmem_max", "core/wmem_max"):
        with suppress(OSError, ValueError):
            text = (settings / name).read_text(encoding="ascii")
            found[name.partition("/")[2]] = [int(number) for number in text.split()]
    return found


def _from_within(
    namespace: str, probe: Callable[[], dict[str, Any]], brokers: Iterable[str]
) -> dict[str, Any]:
    """Inside a network namespace, collect the facts about the links to the brokers. If the
    namespace cannot be entered, all brokers count as unreachable.

    The function imports kafka-redline's code on the executor. If an executor lacks kafka-redline's
    code, another check reports the missing code.
    """
    try:
        with importlib.import_module("jobs.engine.network.namespaces").inside(namespace):
            return probe()
    except Exception as error:  # noqa: BLE001 - errors are returned as data
        return {"unreachable": dict.fromkeys(brokers, str(error))}


def clock_offset(line: Mapping[str, Any], task: int, timeout_s: float) -> dict[str, float]:
    """Compare this executor's clock with the driver's clock, over the control channel.

    Returns:
        `offset_s`, this clock minus the driver's clock [s], and `offset_error_s`, its uncertainty
        [s].

    Raises:
        OSError: the driver cannot be reached, or does not answer.
    """
    try:
        connected = socket.create_connection((line["host"], line["port"]), timeout_s)
    except OSError as error:
        why = _refusal(error, timeout_s)
        raise ConnectionError(f"{line['host']}:{line['port']}: {why}") from error
    with connected, pinned(connected, line["certificate"]) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(json.dumps({"token": line["token"], "task": task}).encode() + b"\n")
        with sock.makefile("rb") as answers:
            found = compare_clocks(partial(_ask_clock, sock, answers), CLOCK_ROUNDS)
            sock.sendall(b'{"done": true}\n')
            while answers.readline(_LINE_BYTES):  # until the driver closes the connection
                continue
    assert found is not None, "CLOCK_ROUNDS is above 0"
    return {"offset_s": found[0], "offset_error_s": found[1]}


def _ask_clock(sock: socket.socket, answers: Any) -> float:
    sock.sendall(b'{"asks": "clock"}\n')
    while text := answers.readline(_LINE_BYTES):
        message = json.loads(text) if text.strip() else {}  # an empty line is a heartbeat
        if "clock_s" in message:
            return float(message["clock_s"])
    raise ConnectionError("the driver closed the connection")


def _try(place: Any, timeout_s: float) -> tuple[str, float | None]:
    try:
        with socket.create_connection((place[0], place[1]), timeout_s) as sock:
            return "", _round_trip_ms(sock)
    except OSError as error:
        return _refusal(error, timeout_s), None


def _refusal(error: OSError, timeout_s: float) -> str:
    """The reason why a connection failed, as text for messages."""
    if isinstance(error, socket.gaierror):
        return "the host name does not resolve"
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    return (error.strerror or str(error)).lower()


def _round_trip_ms(sock: socket.socket) -> float | None:
    if sys.platform != "linux":
        return None
    with suppress(OSError, struct.error):
        info = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _RTT_OFFSET + 4)
        return float(struct.unpack_from("=I", info, _RTT_OFFSET)[0]) / 1000.0
    return None


def _or_error(read: Callable[[], Any]) -> tuple[Any, str]:
    """Returns (value, empty text) if `read` succeeds, and (None, error text) if it raises an error.
    The function catches every error, because the import of a broken package may raise any error.
    """
    try:
        return read(), ""
    except Exception as error:  # noqa: BLE001 - errors are returned as data
        return None, f"{type(error).__name__}: {error}"
