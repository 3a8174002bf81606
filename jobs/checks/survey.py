"""A survey of all executors: the tasks of one barrier stage collect facts, from which rules derive
findings.
"""

from __future__ import annotations

import functools
import json
import platform
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from jobs.checks import executor_facts
from jobs.checks.finding import Finding, ok, problem, warning
from jobs.config import Cluster, Workload
from jobs.engine.batches.pool import CODECS
from jobs.engine.clients.registry import client_named
from jobs.engine.task import clock_comparison
from jobs.engine.task.control_channel import ControlAddress
from jobs.setup.releases import installed_version
from jobs.spark.session import cause_of, run_interruptibly
from metrics.common.errors import ConfigError
from metrics.common.grouping import grouped
from metrics.trial.client import OFFSET_MAX_S, ClockOffset
from metrics.trial.sockets import KernelBuffers
from metrics.units import format_counted, format_ms, format_some

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 3.0
"""Timeout of a connection [s]: ten times a round trip around the world."""
DEADLINE_S = 120.0
"""Timeout of the whole survey [s], including the start of Python workers on the executors."""
CODE = ("jobs.engine", "jobs.engine.clients", "jobs.engine.consuming", "metrics", "search")
"""The packages of kafka-redline that run on executors."""
_ENGINE = ("jobs.engine.stage",)
_NEEDED = {
    "kafka-python": "kafka",
    "crc32c": "crc32c",
    "hdrhistogram": "hdrh.histogram",
    "numpy": "numpy",
    "pyarrow": "pyarrow",
}
_CODEC_MODULES = {"python-snappy": "snappy", "lz4": "lz4.frame", "zstandard": "zstandard"}


@dataclass(frozen=True)
class Needs:
    """The packages and files that a workload needs on every executor.

    Attributes:
        packages: package → name of one module of the package.
        files: paths that every executor must be able to read.
    """

    packages: Mapping[str, str]
    files: tuple[str, ...] = ()

    @classmethod
    def of(cls, workload: Workload, cluster: Cluster) -> Needs:
        """The packages and files that a trial of this workload needs on an executor."""
        packages = dict(_NEEDED)
        for part in workload.parts:
            codec = CODECS[part.producer.compression].package
            if codec:
                packages[codec] = _CODEC_MODULES[codec]
            for name in (part.producer.client, part.consumers.client):
                packages |= client_named(name).packages
        security = cluster.security
        if security.sasl_mechanism == "GSSAPI":
            packages["gssapi"] = "gssapi"
        files = (*(part.payload.messages_file for part in workload.parts), *security.shared_files)
        return cls(packages, tuple(path for path in files if path))


@dataclass(frozen=True)
class ExecutorFacts:
    """The facts about one executor, collected by one task of the survey.

    Attributes:
        host: name of the executor's host.
        executor: host:port of the executor, as in Spark's logs and web pages.
        packages: package → its version; None if the import fails.
        package_errors: package → the error of the import, for each package that cannot be imported.
        code: digest of kafka-redline's code; None if the code is not installed.
        trouble: the reason why kafka-redline's code cannot run; empty if it can.
        offset_s, offset_error_s: the executor's clock minus the driver's clock [s], and the
            uncertainty of this difference [s]. `offset_s` and `offset_error_s` are None if the
            driver cannot be reached.
        channel_trouble: the reason why the executor cannot reach the driver; empty if it can.
        unreachable: broker id → the reason why the connection failed.
        round_trip_ms: broker id → round trip time of a new connection [ms]; Linux only.
        kernel_buffers: the kernel's limits of socket buffers on the executor's host.
        unreadable: paths of `Needs.files` that cannot be read.
    """

    host: str
    executor: str
    packages: Mapping[str, str | None]
    package_errors: Mapping[str, str] = field(default_factory=dict)
    code: str | None = None
    trouble: str = ""
    offset_s: float | None = None
    offset_error_s: float | None = None
    channel_trouble: str = ""
    unreachable: Mapping[str, str] = field(default_factory=dict)
    round_trip_ms: Mapping[str, float] = field(default_factory=dict)
    kernel_buffers: KernelBuffers | None = None
    unreadable: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> ExecutorFacts:
        """The facts in a JSON text from `jobs.checks.executor_facts`."""
        found = json.loads(text)
        limits: Mapping[str, list[int]] = found.pop("kernel_buffers", {})
        if limits:
            caps = [next(iter(limits.get(name, ())), None) for name in ("rmem_max", "wmem_max")]
            rmem, wmem = (tuple(limits.get(name, ())) for name in ("tcp_rmem", "tcp_wmem"))
            found["kernel_buffers"] = KernelBuffers(found["host"], rmem, wmem, *caps)
        return cls(**{**found, "unreadable": tuple(found["unreadable"])})


def driver_facts(needs: Needs) -> ExecutorFacts:
    """The facts about the driver, for the comparison with the executors."""
    return ExecutorFacts(
        host=platform.node(),
        executor="driver",
        packages={name: installed_version(name) for name in needs.packages},
        code=executor_facts.digest(CODE),
        offset_s=0.0,
        offset_error_s=0.0,
    )


def probe_order(
    needs: Needs,
    brokers: Mapping[int, tuple[str, int]],
    channel: ControlAddress,
    network_namespace: str = "",
) -> dict[str, Any]:
    """The input of one task of the survey. The input has only plain values, because executors may
    lack kafka-redline's classes.
    """
    return {
        "packages": dict(needs.packages),
        "files": list(needs.files),
        "code": CODE,
        "engine": _ENGINE,
        "brokers": {str(broker): list(place) for broker, place in brokers.items()},
        "network_namespace": network_namespace,
        "clock": asdict(channel),
        "timeout_s": TIMEOUT_S,
    }


def survey(spark: SparkSession, slots: int, order: Mapping[str, Any]) -> list[ExecutorFacts]:
    """Collect facts about all executors at the same time, with one task in each slot.

    Raises:
        ConfigError: the Spark stage failed, for example because executors run another version of
            Python.
    """
    from py4j.protocol import Py4JJavaError

    context = spark.sparkContext
    task = functools.partial(executor_facts.probe_task, json.dumps(order))

    def collect() -> Sequence[str]:
        stage = context.parallelize(range(slots), slots).barrier().mapPartitions(task)
        return [str(text) for text in stage.collect()]

    group, late = "redline-probe", threading.Event()

    def cancel() -> None:
        late.set()
        context.cancelJobGroup(group)

    timer = threading.Timer(DEADLINE_S, cancel)
    timer.daemon = True
    timer.start()
    try:
        with shipped_as_source():
            return [ExecutorFacts.parse(text) for text in run_interruptibly(spark, group, collect)]
    except Py4JJavaError as error:
        why = f"did not answer within {DEADLINE_S:.0f} s" if late.is_set() else cause_of(error)
        python = ".".join(platform.python_version_tuple()[:2])
        raise ConfigError(
            f"the survey of Spark's executors failed ({why}); expected the driver's Python "
            f"{python} with pyspark on every executor; set PYSPARK_PYTHON (spark.pyspark.python) "
            "to this Python, and see the executors' logs"
        ) from error
    finally:
        timer.cancel()


@contextmanager
def shipped_as_source() -> Iterator[None]:
    """Pickle the survey's functions by value, so that they run on executors without kafka-redline's
    wheel.
    """
    from pyspark import cloudpickle

    shipped: Any = cloudpickle  # the package has no types
    modules = (executor_facts, clock_comparison)
    for module in modules:
        shipped.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            shipped.unregister_pickle_by_value(module)


BOUNDS_S = (0.05, 0.1, OFFSET_MAX_S)
"""Bounds of clock offsets [s]. The environment of a run contains the smallest bound that no clock
offset exceeds. The offsets themselves would differ between two runs on the same machines.
"""
NAMED_MAX = 4
"""Maximum number of hosts or brokers that a message names. If there are more hosts or brokers than
this number, the message states how many are left out.
"""


def executor_findings(
    executors: Sequence[ExecutorFacts],
    driver: ExecutorFacts,
    brokers: Mapping[str, tuple[str, int]],
) -> list[Finding]:
    """Findings about the executors.

    Args:
        brokers: broker id → (host, port), for each broker that executors must reach.
    """
    return [
        *_code(executors, driver),
        *_packages(executors, driver),
        *_files(executors),
        *_clocks(executors),
        *_brokers(executors, brokers),
        *_links(executors),
    ]


def clocks_within(executors: Iterable[ExecutorFacts]) -> str | None:
    """The smallest value of `BOUNDS_S` that no executor's clock offset exceeds, as text; None if
    the offset of an executor is unknown.
    """
    offsets = [each.offset_s for each in executors]
    known = [abs(offset) for offset in offsets if offset is not None]
    if len(known) < len(offsets) or not known:
        return None
    bound = next((each for each in BOUNDS_S if max(known) <= each), None)
    return f"more than {OFFSET_MAX_S:g} s" if bound is None else f"{bound:g} s"


def _code(executors: Sequence[ExecutorFacts], driver: ExecutorFacts) -> list[Finding]:
    check = "executors' code"
    found = [
        problem(
            check,
            f"kafka-redline's code does not run on {_some(hosts)} ({why})",
            "kafka-redline's wheel and packages on every executor",
            "build the wheel (make dist), give the wheel to spark-submit with --py-files, and "
            "install the packages of setup.py into the executors' Python",
        )
        for why, hosts in _hosts_by(executors, lambda each: each.trouble).items()
    ]
    other = [
        each.host
        for each in executors
        if not each.trouble and driver.code is not None and each.code != driver.code
    ]
    if other:
        found.append(
            problem(
                check,
                f"{_some(other)} has another version of kafka-redline's code than the driver",
                "the driver's code on every executor",
                "build the wheel again (make dist) and give the wheel to spark-submit, or remove "
                "an older installation from the executors' Python",
            )
        )
    return found or [ok(check, f"the same code as on the driver, on {_count(executors)}")]


def _packages(executors: Sequence[ExecutorFacts], driver: ExecutorFacts) -> list[Finding]:
    check = "executors' packages"
    found = []
    for name, version in driver.packages.items():
        lacking = [each for each in executors if each.packages.get(name) is None]
        if lacking:
            why = next((w for each in lacking if (w := each.package_errors.get(name))), "")
            found.append(
                problem(
                    check,
                    f"{_some(each.host for each in lacking)} cannot use the package {name} "
                    f"({why or 'not installed'})",
                    "the package on every executor",
                    f"install the package into the executors' Python (pip install {name})",
                )
            )
        if version is not None:
            found += _of_other_version(check, name, version, executors)
    return found or [ok(check, ", ".join(f"{n} {v}" for n, v in driver.packages.items()))]


def _of_other_version(
    check: str, name: str, version: str, executors: Sequence[ExecutorFacts]
) -> list[Finding]:
    others = _hosts_by(executors, lambda each: each.packages.get(name) or version)
    return [
        warning(
            check,
            f"{_some(hosts)} has {name} {other}, and the driver has {version}",
            "the driver's version on every executor",
            "install the versions of conf/constraints.txt",
        )
        for other, hosts in others.items()
        if other != version
    ]


def _files(executors: Sequence[ExecutorFacts]) -> list[Finding]:
    lacking = grouped((path, each.host) for each in executors for path in each.unreadable)
    return [
        problem(
            "executors' files",
            f"{_some(hosts)} cannot read {path}",
            "the file at this path on every executor",
            "copy the file to every executor, or name another file in the cluster's or workload's "
            "file",
        )
        for path, hosts in lacking.items()
    ]


def _clocks(executors: Sequence[ExecutorFacts]) -> list[Finding]:
    check = "executors' clocks"
    found = [
        problem(
            check,
            f"{_some(hosts)} cannot reach the driver ({why})",
            "a connection from every executor to the driver, for commands and clock readings",
            "set spark.driver.host to an address that executors can reach (behind NAT the "
            "external address, in a pod the name of the headless service), set "
            "spark.driver.bindAddress=0.0.0.0, and set spark.redline.control.port to a port that "
            "the firewall, the NAT or the service forwards",
        )
        for why, hosts in _hosts_by(executors, lambda each: each.channel_trouble).items()
    ]
    known = [each for each in executors if each.offset_s is not None]
    worst = max(known, key=lambda each: abs(each.offset_s or 0.0), default=None)
    if worst is None:
        return found
    clock = ClockOffset(worst.offset_s or 0.0, worst.offset_error_s or 0.0)
    text = f"{worst.host}'s clock is {clock.text}"
    remedy = "synchronize the clocks (chronyd, or another NTP client, on every host)"
    if clock.least_s > OFFSET_MAX_S:
        expected = (
            f"at most {OFFSET_MAX_S:g} s, because each task starts the load when its own clock "
            "shows the start time"
        )
        return [*found, problem(check, text, expected, remedy)]
    if abs(clock.offset_s) + clock.error_s > OFFSET_MAX_S:
        expected = (
            f"an offset of at most {OFFSET_MAX_S:g} s, including the uncertainty of the "
            "measurement; a faster network makes the measurement more precise"
        )
        return [*found, warning(check, text, expected, remedy)]
    return [*found, ok(check, text)]


def _brokers(
    executors: Sequence[ExecutorFacts], brokers: Mapping[str, tuple[str, int]]
) -> list[Finding]:
    check = "brokers, from executors"
    if not brokers:
        return []

    def reasons(unreachable: Mapping[str, str]) -> list[str]:
        places = {broker: f"{host}:{port}" for broker, (host, port) in brokers.items()}
        return [f"broker {each} at {places[each]} ({why})" for each, why in unreachable.items()]

    found = [
        problem(
            check,
            f"{each.host} cannot reach {_some(reasons(each.unreachable))}",
            "connections from every executor to every broker's advertised address",
            "open the network between the executors and the brokers, or correct "
            "advertised.listeners or the executors' name resolution",
        )
        for each in executors
        if each.unreachable
    ]
    return found or [
        ok(check, f"{format_counted(len(brokers), 'broker')} reached from {_count(executors)}")
    ]


def _links(executors: Sequence[ExecutorFacts]) -> list[Finding]:
    """A finding with the round trip times to the brokers, and the socket buffer limits of the
    hosts.
    """
    trips = [
        (ms, broker, each.host)
        for each in executors
        for broker, ms in sorted(each.round_trip_ms.items())
    ]
    if not trips:
        return []
    (least_ms, near, _), (most_ms, far, host) = min(trips), max(trips)
    range_text = f"round trips of {format_ms(least_ms)} ms (broker {near})"
    if len(trips) > 1:
        range_text += f" to {format_ms(most_ms)} ms (broker {far} from {host})"
    known = _hosts_by(executors, lambda e: e.kernel_buffers.text if e.kernel_buffers else "")
    buffers = [f"socket buffers on {_some(hosts)}: {text}" for text, hosts in known.items()]
    return [ok("links to brokers", "; ".join([range_text, *buffers[:NAMED_MAX]]))]


def _hosts_by(
    executors: Sequence[ExecutorFacts], text_of: Callable[[ExecutorFacts], str]
) -> dict[str, list[str]]:
    """Text that `text_of` returns → hosts of the executors for which `text_of` returns this text.
    The result lacks executors for which `text_of` returns an empty text.
    """
    return grouped((text, each.host) for each in executors if (text := text_of(each)))


def _some(names: Iterable[str]) -> str:
    return format_some(dict.fromkeys(names), NAMED_MAX)


def _count(executors: Iterable[ExecutorFacts]) -> str:
    return format_counted(len({each.executor for each in executors}), "executor")
