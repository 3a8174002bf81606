"""Asking all executors at once what they have: one barrier stage over all slots."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import platform
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark import cloudpickle

from jobs.checks import executor_facts
from jobs.config import Cluster, Workload
from jobs.engine.batches.compression import CODECS
from jobs.engine.clients.registry import CLIENTS
from jobs.engine.task import clock_comparison
from jobs.engine.task.control_channel import ControlAddress
from jobs.spark.session import cause_of, run_interruptibly
from metrics.common.errors import ConfigError
from metrics.trial.sockets import KernelBuffers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 3.0
"""What a task waits for a connection [s]: a round trip around the world takes a tenth of it."""
DEADLINE_S = 120.0
"""A probe that is not over by then is given up [s]; executors start Python workers for it."""
CODE = ("jobs.engine", "jobs.engine.clients", "jobs.engine.consuming", "metrics", "search")
"""The packages of ours that executors run."""
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
    """What every executor needs for a workload.

    Attributes:
        packages: package → a module of it.
        files: paths that must be readable on executors.
    """

    packages: Mapping[str, str]
    files: tuple[str, ...] = ()

    @classmethod
    def of(cls, workload: Workload, cluster: Cluster) -> Needs:
        """What a trial of this workload takes on an executor."""
        packages = dict(_NEEDED)
        codec = CODECS[workload.producer.compression].package
        if codec:
            packages[codec] = _CODEC_MODULES[codec]
        for name in (workload.producer.client, workload.consumers.client):
            packages |= CLIENTS[name].packages
        security = cluster.security
        if security.sasl_mechanism == "GSSAPI":
            packages["gssapi"] = "gssapi"
        files = (
            workload.payload.messages_file,
            *(getattr(security, key) for key in ("cafile", "certfile", "keyfile")),
        )
        return cls(packages, tuple(path for path in files if path))


@dataclass(frozen=True)
class ExecutorFacts:
    """What one task of the probe found where it ran.

    Attributes:
        executor: host:port by which Spark's log and page name it.
        packages: package → version, or None where it does not import.
        package_errors: package → what its import said.
        code: digest of our own code there; None where it is not there.
        trouble: why our code does not run there, or empty.
        offset_s, offset_error_s: its clock ahead of the driver's, and the uncertainty [s];
            None where the driver was not reached.
        line_trouble: why the driver was not reached, or empty.
        unreachable: broker id → why no connection came about.
        round_trip_ms: broker id → of a new connection to it, where the system tells.
        kernel_buffers: what its host lets the buffers of sockets be.
        unreadable: paths of `Needs.files` that cannot be read.
    """

    host: str
    executor: str
    python: str
    packages: Mapping[str, str | None]
    package_errors: Mapping[str, str] = field(default_factory=dict)
    code: str | None = None
    trouble: str = ""
    offset_s: float | None = None
    offset_error_s: float | None = None
    line_trouble: str = ""
    unreachable: Mapping[str, str] = field(default_factory=dict)
    round_trip_ms: Mapping[str, float] = field(default_factory=dict)
    kernel_buffers: KernelBuffers | None = None
    unreadable: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> ExecutorFacts:
        """From what `jobs.checks.executor_facts` yields."""
        told = json.loads(text)
        clock, packages = told["clock"].get("value", {}), told["packages"]
        return cls(
            host=told["host"],
            executor=told["executor"],
            python=told["python"],
            packages={name: each.get("version") for name, each in packages.items()},
            package_errors={n: each["error"] for n, each in packages.items() if "error" in each},
            code=told["code"].get("value"),
            trouble=told["engine"].get("error", ""),
            offset_s=clock.get("offset_s"),
            offset_error_s=clock.get("error_s"),
            line_trouble=told["clock"].get("error", ""),
            unreachable=told.get("unreachable", {}),
            round_trip_ms=told.get("round_trip_ms", {}),
            kernel_buffers=_buffers(told["host"], told.get("kernel_buffers", {})),
            unreadable=tuple(told["unreadable"]),
        )


def _buffers(host: str, told: Mapping[str, Sequence[int]]) -> KernelBuffers | None:
    if not told:
        return None
    caps = [next(iter(told.get(name, ())), None) for name in ("rmem_max", "wmem_max")]
    rmem, wmem = (tuple(told.get(name, ())) for name in ("tcp_rmem", "tcp_wmem"))
    return KernelBuffers(host, rmem, wmem, *caps)


def own_facts(needs: Needs) -> ExecutorFacts:
    """The driver's, to compare with."""
    return ExecutorFacts(
        host=platform.node(),
        executor="driver",
        python=platform.python_version(),
        packages={name: _version_of(name) for name in needs.packages},
        code=executor_facts.digest(CODE),
        offset_s=0.0,
        offset_error_s=0.0,
    )


def order_of(
    needs: Needs,
    brokers: Mapping[int, tuple[str, int]],
    line: ControlAddress,
    network_namespace: str = "",
) -> dict[str, Any]:
    """What a task of the probe is told, as plain values: it may lack our classes."""
    return {
        "packages": dict(needs.packages),
        "files": list(needs.files),
        "code": CODE,
        "engine": _ENGINE,
        "brokers": {str(broker): list(place) for broker, place in brokers.items()},
        "network_namespace": network_namespace,
        "clock": {"host": line.host, "port": line.port, "token": line.token},
        "timeout_s": TIMEOUT_S,
    }


def survey(spark: SparkSession, slots: int, order: Mapping[str, Any]) -> list[ExecutorFacts]:
    """What each slot's executor tells; all of them are asked at the same time.

    Raises:
        ConfigError: the stage did not end, for example as executors run another Python.
    """
    context = spark.sparkContext
    task = functools.partial(executor_facts.probe_task, json.dumps(order))

    def collect() -> Sequence[str]:
        stage = context.parallelize(range(slots), slots).barrier().mapPartitions(task)
        return [str(text) for text in stage.collect()]

    group, late = "redline-probe", threading.Event()
    try:
        with shipped_as_source(), _cancelled_after(spark, group, late):
            return [ExecutorFacts.parse(text) for text in run_interruptibly(spark, group, collect)]
    except Py4JJavaError as error:
        why = f"did not answer within {DEADLINE_S:.0f} s" if late.is_set() else cause_of(error)
        python = ".".join(platform.python_version_tuple()[:2])
        raise ConfigError(
            f"Spark's executors could not be looked at ({why}); expected the driver's Python "
            f"{python} with pyspark on every executor; set PYSPARK_PYTHON (spark.pyspark.python) "
            "to it, and see the executors' logs"
        ) from error


@contextmanager
def shipped_as_source() -> Iterator[None]:
    """Ship the functions of the probe as their code, so that they run without our wheel."""
    shipped: Any = cloudpickle  # it has no types
    modules = (executor_facts, clock_comparison)
    for module in modules:
        shipped.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            shipped.unregister_pickle_by_value(module)


@contextmanager
def _cancelled_after(spark: SparkSession, group: str, late: threading.Event) -> Iterator[None]:
    """End the jobs of the group at the deadline, and say so."""

    def cancel() -> None:
        late.set()
        spark.sparkContext.cancelJobGroup(group)

    timer = threading.Timer(DEADLINE_S, cancel)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _version_of(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
