"""Cost of 10, 100 and 1,000 brokers, and of up to 500 tasks, for the driver.

The driver's code is real. The rest is simulated on loopback of the same machine: exporters, JMX of
many brokers in one JVM, and the samples of a trial. So CPU time is given for each side, and the
wall time of a round includes both.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import click
import psutil

from jobs.cluster.admin import query_all_brokers
from jobs.cluster.connect import connect
from jobs.cluster.health import ClusterHealth
from jobs.cluster.topics import PARTITIONS_AT_ONCE, Topics
from jobs.config.metrics_registry import load_rules
from jobs.spark.session import close_session, local_session
from jobs.testbed.launcher import start
from metrics.judging.running import Slices
from metrics.judging.thresholds import Thresholds
from metrics.judging.verdict import judge_all, progress_of
from metrics.sources.hosts.node_exporter import NodeExporters
from metrics.sources.jmx import DriverJvmSource
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.source import Endpoint
from metrics.tables.schema import SCHEMAS
from metrics.tables.store import TableStore
from metrics.traffic.pattern import TopicOptions, TrafficPattern
from metrics.trial.trial import Trial
from tests.bench import executors
from tests.bench.cpu import cpu_s
from tests.support.bare_jvm import bare_jvm
from tests.support.fake_cluster import TOPIC, SimulatedCluster
from tests.support.patterns import pattern
from tests.support.simulated_exporters import simulated_exporters
from tests.support.simulated_jmx import simulated_jmx
from tests.support.simulated_trial import PARTITIONS_PER_BROKER, SimulatedTrial

INTERVAL_S = 5.0
"""Interval between two samples, as docs/evidence/scale.md advises for many brokers [s]."""
PATIENCE_S = 120.0
"""Deadline of a sample; a later one counts as missed. Rounds may exceed `INTERVAL_S` [s]."""
SETTLE_ROUNDS = 5
"""Number of rounds before the measurement, in which the driver's JVM compiles its code."""
MB = 1e6
PARTS = ("exporters", "jmx", "judging", "tables", "administration", "topics", "executors")

_Row = tuple[str, ...]


@dataclass(frozen=True)
class Rounds:
    """Rounds of a source: the wall time of each, and the CPU time of each process [s]."""

    wall_s: Sequence[float]
    cpu_s: dict[str, Sequence[float]]
    missed: int

    def cells(self) -> _Row:
        """Median and longest time, and the median CPU time of each process."""
        used = " + ".join(f"{name} {median(spent):.2f}" for name, spent in self.cpu_s.items())
        return f"{median(self.wall_s):.2f}", f"{max(self.wall_s):.2f}", used, str(self.missed)


def rounds_of(look: Callable[[], Sequence[Any]], pids: dict[str, int], count: int) -> Rounds:
    """Measure `count` rounds, one after the other, after rounds to settle.

    Args:
        look: makes one round, and returns samples with an `error` each.
        pids: name of a process → its id, for the CPU time.
    """
    for _ in range(SETTLE_ROUNDS):
        look()
    at_s, used, missed = [time.monotonic()], [{n: cpu_s(p) for n, p in pids.items()}], 0
    for _ in range(count):
        missed += sum(each.error is not None for each in look())
        at_s.append(time.monotonic())
        used.append({name: cpu_s(pid) for name, pid in pids.items()})
    return Rounds(
        [after - before for before, after in pairwise(at_s)],
        {name: [b[name] - a[name] for a, b in pairwise(used)] for name in pids},
        missed,
    )


def resident_mb(*pids: int) -> float:
    """Resident memory of these processes [MB]."""
    return sum(psutil.Process(pid).memory_info().rss for pid in pids) / MB


def exporters(count: int, rounds: int) -> Iterator[_Row]:
    """A row for the brokers' exporters, and one for the hosts' exporters."""
    own = {"Python": os.getpid()}
    with simulated_exporters(count, count) as (brokers, hosts):
        endpoints = [Endpoint(i, "127.0.0.1", port) for i, port in enumerate(brokers, 1)]
        addresses = {i: f"127.0.0.1:{port}" for i, port in enumerate(hosts, 1)}
        rules = load_rules("kafka-kraft")
        with closing(PrometheusSource(endpoints, rules, PATIENCE_S)) as source:
            source.open()
            taken = rounds_of(source.sample_all, own, rounds)
            yield f"{count:,}", "exporters", *taken.cells(), f"{resident_mb(os.getpid()):.0f}"
        with closing(NodeExporters(addresses, PATIENCE_S)) as machines:
            machines.open()
            taken = rounds_of(machines.sample_all, own, rounds)
            yield f"{count:,}", "node exporters", *taken.cells(), f"{resident_mb(os.getpid()):.0f}"


def jmx(count: int, rounds: int) -> Iterator[_Row]:
    """A row for JMX, read by a separate JVM."""
    with (
        simulated_jmx(count) as brokers,
        bare_jvm() as (jvm, pid),
        closing(DriverJvmSource(jvm, brokers.endpoints, PATIENCE_S)) as source,
    ):
        source.open()
        pids = {"Python": os.getpid(), "JVM": pid, "(simulation)": brokers.pid}
        taken = rounds_of(source.sample_all, pids, rounds)
        yield f"{count:,}", "JMX", *taken.cells(), f"{resident_mb(os.getpid(), pid):.0f}"


def judging(count: int) -> _Row:
    """CPU times of collecting the evidence, of its judgement, and of one check of the early end."""
    trial = SimulatedTrial(count, interval_s=INTERVAL_S)
    samples, hosts, client = trial.samples(), trial.host_samples(), trial.client()
    goals, window = {"goal": Thresholds()}, (trial.start_s, trial.start_s + trial.window_s)
    at_s = [time.process_time()]
    evidence = trial.evidence(samples, hosts, client)
    at_s.append(time.process_time())
    verdict = judge_all(evidence, goals)["goal"].verdict
    at_s.append(time.process_time())
    slices = Slices(samples, trial.broker_ids, window, INTERVAL_S, [(1.0, 1)], 1.0)
    progress_of(slices, goals["goal"])
    at_s.append(time.process_time())
    took = [f"{after - before:.3f}" for before, after in pairwise(at_s)]
    return f"{count:,}", f"{len(samples):,}", *took, verdict.value


def traffic(count: int) -> TrafficPattern:
    """The pattern of a trial on this number of brokers; it is not offered."""
    made = pattern(count, message_bytes=1_000, topic=TopicOptions(replication_factor=3))
    return replace(made, brokers=count)


def tables(count: int, store: TableStore, base: Path, jvm_pid: int) -> _Row:
    """Rows and bytes that a trial adds to each table, and the time to append it."""
    made = SimulatedTrial(count, interval_s=INTERVAL_S)
    samples, hosts = made.samples(), made.host_samples()
    evidence = made.evidence(samples, hosts, made.client())
    trial = Trial(
        f"scale-{time.monotonic_ns()}",  # a new id, as a run's trial is appended only once
        1,
        made.start_s,
        made.start_s + made.window_s,
        "redline-scale",
        traffic(count),
        evidence,
        judge_all(evidence, {"goal": Thresholds()}),
    )
    before, began_s = _sizes(base), time.monotonic()
    store.append_trial(trial, samples, hosts)
    store.settle()
    took_s = time.monotonic() - began_s
    grown = {name: size - before[name] for name, size in _sizes(base).items()}
    lasted_s = made.window_s + 2 * made.interval_s
    an_hour = 3600 / lasted_s
    looks = {"samples": len(samples), "hosts": len(hosts), "trials": 1}
    return (
        f"{count:,}",
        *(f"{rows:,} / {grown[name] / MB:.2f}" for name, rows in looks.items()),
        f"{sum(looks.values()) * an_hour:,.0f} / {sum(grown.values()) * an_hour / MB:.0f}",
        f"{took_s:.1f}",
        f"{resident_mb(os.getpid()):.0f} + {resident_mb(jvm_pid):.0f}",
    )


def _sizes(base: Path) -> dict[str, int]:
    """Size of each table's data, without its transaction log [B]."""
    return {
        table: sum(each.stat().st_size for each in (base / table).glob("*.parquet"))
        for table in SCHEMAS
    }


@contextmanager
def stored() -> Iterator[tuple[TableStore, Path, int]]:
    """New tables, their folder, and the process id of Spark's JVM."""
    with tempfile.TemporaryDirectory(prefix="redline-scale-") as folder:
        session = local_session(2, "kafka-redline scale")
        try:
            base = Path(folder) / "tables"
            store = TableStore(session, str(base)).open()
            store.settle()
            (jvm,) = (p for p in psutil.Process().children(True) if p.name() == "java")
            yield store, base, jvm.pid
        finally:
            close_session(session)


def administration(count: int) -> _Row:
    """Times to connect and to send three requests to all brokers; one process has both sides."""
    brokers = range(count)
    replicas = {
        i: tuple((i + k) % count + 1 for k in range(3))
        for i in range(count * PARTITIONS_PER_BROKER)
    }
    with SimulatedCluster(count, replicas) as cluster:
        at_s = [time.monotonic()]
        with connect(cluster.addresses[:3]) as admin:
            at_s.append(time.monotonic())
            for _ in range(2):  # the first one opens the connections
                admin.end_offsets((TOPIC, each) for each in replicas)
                at_s.append(time.monotonic())
            ClusterHealth(admin).log_dirs([TOPIC])
            at_s.append(time.monotonic())
            query_all_brokers(
                lambda each: admin.broker_config(each + 1, ("log.segment.bytes",)), brokers
            )
            at_s.append(time.monotonic())
    return f"{count:,}", *(f"{after - before:.2f}" for before, after in pairwise(at_s))


def topics(partitions: Sequence[int]) -> Iterator[_Row]:
    """Times to create, check and delete topics of these numbers of partitions on real brokers."""
    with (
        start(brokers=3, name="bench-scale") as testbed,
        connect(testbed.bootstrap_servers) as admin,
    ):
        keeper = Topics(admin, "scale")
        for count in partitions:
            several = math.ceil(count / PARTITIONS_AT_ONCE)
            share = count // 3 // several
            options = TopicOptions(replication_factor=1, partitions_per_broker=share, count=several)
            wanted = replace(pattern(3, message_bytes=count, topic=options), brokers=3)
            at_s = [time.monotonic()]
            made = keeper.create(wanted)
            at_s.append(time.monotonic())
            keeper.check(made)
            at_s.append(time.monotonic())
            keeper.end_offsets(made)
            at_s.append(time.monotonic())
            keeper.delete(made.names)
            at_s.append(time.monotonic())
            size = f"{3 * share * several:,} in {several}"
            yield size, *(f"{after - before:.2f}" for before, after in pairwise(at_s))


_SAMPLING = ("brokers", "source", "round s", "longest s", "CPU-s a round", "missed", "driver MB")
_JUDGING = ("brokers", "samples", "evidence CPU-s", "verdict CPU-s", "early end CPU-s", "verdict")
_TABLES = (
    "brokers",
    "samples rows / MB",
    "hosts rows / MB",
    "trials rows / MB",
    "an hour rows / MB",
    "append s",
    "Python + JVM MB",
)
_ADMINISTRATION = (
    "brokers",
    "connect s",
    "first end offsets s",
    "end offsets s",
    "log dirs s",
    "a property s",
)
_TOPICS = ("partitions, topics", "make s", "check s", "end offsets s", "delete s")


def _show(title: str, heads: _Row, rows: Iterator[_Row]) -> None:
    """Print a Markdown table, each row as soon as it is measured."""
    click.echo(f"\n{title}\n\n| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    for row in rows:
        click.echo(f"| {' | '.join(row)} |")


@click.command()
@click.option(
    "--brokers", default="10,100,1000", show_default=True, help="Numbers of brokers, in turn."
)
@click.option("--tasks", default="10,100,500", show_default=True, help="Numbers of tasks, in turn.")
@click.option("--rounds", default=10, show_default=True, help="Measured rounds of sampling.")
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(PARTS),
    help="Only this part; may be given several times.",
)
def bench_scale(brokers: str, tasks: str, rounds: int, parts: tuple[str, ...]) -> None:
    """Measure the cost of many brokers and tasks for the driver."""
    counts = [int(each) for each in brokers.split(",")]
    wanted = set(parts or PARTS)
    for name, sampled in (("exporters", exporters), ("jmx", jmx)):
        if name in wanted:
            found = (row for count in counts for row in sampled(count, rounds))
            _show(f"Sampling, {name}: rounds one after the other", _SAMPLING, found)
    if "judging" in wanted:
        _show(
            f"Judging a trial of 30 s, a sample every {INTERVAL_S:g} s",
            _JUDGING,
            map(judging, counts),
        )
    if "tables" in wanted:
        with stored() as (store, base, pid):
            found = (tables(count, store, base, pid) for count in [counts[0], *counts])
            title = (
                f"Delta tables: a trial, and an hour of such trials of {30 + 2 * INTERVAL_S:g} s"
            )
            next(found)  # the first append of a session takes longer
            _show(title, _TABLES, found)
    if "administration" in wanted:
        found = (administration(count) for count in counts)
        _show("Administration, ten partitions a broker", _ADMINISTRATION, found)
    if "topics" in wanted:
        each = [count * PARTITIONS_PER_BROKER for count in counts]
        _show("Topics on three real brokers", _TOPICS, topics([n // 3 * 3 for n in each]))
    if "executors" in wanted:
        numbers = [int(each) for each in tasks.split(",")]
        _show("Control channels", executors.HEADS, map(executors.channels, numbers))
        pairs = [*((each, 1_000) for each in numbers), (numbers[-1], 10_000)]
        rows = (executors.reports(*each) for each in pairs)
        _show("Plan and reports of a stage", executors.REPORT_HEADS, rows)


if __name__ == "__main__":
    bench_scale()
