"""Facts that an executor reports of itself; needs the standard library only, shipped as source.

An executor may lack our wheel or any package. What fails in here is returned as data: a raised
error would make Spark repeat the stage and end in a Java stack trace. Modules of ours that it
imports are shipped as source, too (`jobs.checks.survey.shipped_as_source`).
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
"""Round trips of a comparison of clocks: the shortest of them has the smallest error."""
_LINE_BYTES = 4_096
_TCP_INFO, _RTT_OFFSET = 11, 68  # tcpi_rtt in include/uapi/linux/tcp.h


def probe_task(order: str, _ids: Iterable[int]) -> Iterator[str]:
    """One task of the survey's barrier stage.

    Args:
        order: JSON of the order from `jobs.checks.survey.probe_order`.

    Yields:
        The facts as JSON, once.
    """
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    places = [info.address for info in context.getTaskInfos()]
    task = context.partitionId()
    hosts = [place.rpartition(":")[0] for place in places]
    # Tasks of one host share its network, so the first of them probes the brokers for all.
    is_first = hosts.index(hosts[task]) == task
    yield json.dumps(facts(json.loads(order), task, places[task], is_first))


def facts(order: Mapping[str, Any], task: int, place: str, is_first: bool) -> dict[str, Any]:
    """The facts that an order requests, by the names of `jobs.checks.survey.ExecutorFacts`."""
    packages = {name: package(name, module) for name, module in order["packages"].items()}
    code, _ = _or_error(partial(digest, order["code"]))
    _, trouble = _or_error(partial(_import, order["engine"]))
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
    """The version of a package, and the error of its import or an empty text."""

    def read() -> str:
        importlib.import_module(module)
        return importlib.metadata.version(name)

    return _or_error(read)


def digest(packages: Iterable[str]) -> str:
    """A digest of these packages' source files, the same in a checkout and in a wheel.

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
    """Facts about the network between this host and the brokers."""
    links = probe_brokers(brokers, timeout_s)
    return {
        "unreachable": {broker: why for broker, (why, _) in links.items() if why},
        "round_trip_ms": {broker: ms for broker, (_, ms) in links.items() if ms is not None},
        "kernel_buffers": kernel_buffers(),
    }


def probe_brokers(
    brokers: Mapping[str, Any], timeout_s: float
) -> dict[str, tuple[str, float | None]]:
    """Broker id → why its address takes no connection from here, or empty; and the round trip [ms].

    The kernel measures the round trip by the first packets; None where it does not report it.
    """
    with ThreadPoolExecutor(max_workers=min(32, max(1, len(brokers)))) as pool:
        tried = pool.map(lambda place: _try(place, timeout_s), brokers.values())
        return dict(zip(brokers, tried, strict=True))


def kernel_buffers(settings: Path = Path("/proc/sys/net")) -> dict[str, list[int]]:
    """Name → limits of socket buffers in this kernel [B], as far as it shows them."""
    found = {}
    for name in ("ipv4/tcp_rmem", "ipv4/tcp_wmem", "core/rmem_max", "core/wmem_max"):
        with suppress(OSError, ValueError):
            text = (settings / name).read_text(encoding="ascii")
            found[name.partition("/")[2]] = [int(number) for number in text.split()]
    return found


def _from_within(
    namespace: str, probe: Callable[[], dict[str, Any]], brokers: Iterable[str]
) -> dict[str, Any]:
    """The facts from within a network namespace; no broker is reachable if it cannot be entered.

    This needs kafka-redline's code, which may be missing here; another check reports that.
    """
    try:
        with importlib.import_module("jobs.engine.network.namespaces").inside(namespace):
            return probe()
    except Exception as error:  # noqa: BLE001 - errors are returned as data, see above
        return {"unreachable": dict.fromkeys(brokers, str(error))}


def clock_offset(line: Mapping[str, Any], task: int, timeout_s: float) -> dict[str, float]:
    """Compare this clock with the driver's, over the control channel that the tasks of a load use.

    Returns:
        `offset_s`, by how much this clock is ahead [s], and `offset_error_s`, its uncertainty [s].

    Raises:
        OSError: the driver cannot be reached or does not answer.
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
            while answers.readline(_LINE_BYTES):  # until the driver has read it
                continue
    assert found is not None, "CLOCK_ROUNDS is above 0"
    return {"offset_s": found[0], "offset_error_s": found[1]}


def _ask_clock(sock: socket.socket, answers: Any) -> float:
    sock.sendall(b'{"asks": "clock"}\n')
    while text := answers.readline(_LINE_BYTES):
        message = json.loads(text) if text.strip() else {}  # an empty line is a heartbeat
        if "clock_s" in message:
            return float(message["clock_s"])
    raise ConnectionError("the driver hung up")


def _try(place: Any, timeout_s: float) -> tuple[str, float | None]:
    try:
        with socket.create_connection((place[0], place[1]), timeout_s) as sock:
            return "", _round_trip_ms(sock)
    except OSError as error:
        return _refusal(error, timeout_s), None


def _refusal(error: OSError, timeout_s: float) -> str:
    """Why an address takes no connection, in words."""
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


def _import(modules: Iterable[str]) -> None:
    for name in modules:
        importlib.import_module(name)


def _or_error(read: Callable[[], Any]) -> tuple[Any, str]:
    """The value, or None with the error; a broken package may raise any error."""
    try:
        return read(), ""
    except Exception as error:  # noqa: BLE001 - errors are returned as data, see above
        return None, f"{type(error).__name__}: {error}"
