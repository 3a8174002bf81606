"""Cost of guards and samples for brokers with many partitions of others.

Two real brokers get topics with two replicas, so each has as many replicas as there are
partitions, and leads half of them. The CPU time of the brokers' threads that answer, in a number
of requests and less their time at rest, is the cost of a request. Requests and rest alternate; the
median of the rounds counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import click

from jobs.cluster.admin import KafkaAdmin, TopicSize
from jobs.cluster.connect import connect
from jobs.cluster.health import ClusterHealth
from jobs.config.metrics_registry import load_rules
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from jobs.testbed.places import free_ports
from metrics.sources.jmx import DriverJvmSource
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.source import Endpoint, JmxEndpoint
from tests.support.bare_jvm import bare_jvm
from tests.support.exporters import HOST, Exporter

BROKERS = (1, 2)
EXPORTERS = {1: "kafka-kraft", 2: "msk"}
"""Broker → the rules of its exporter: those that are often used, and one that shows all beans."""
TOPIC_PARTITIONS = 50
DEADLINE_S = 30.0
ROUND_S = 1.0
"""Time of the requests of a round, and of the rest after it, at least [s]."""
ROUNDS = 3
SETTLE_S = 5.0
"""Time of requests before the first round, in which the brokers compile their code [s]."""

QUIET = {"log.retention.check.interval.ms": 300_000, "log.initial.task.delay.ms": 300_000}
"""Properties without which a broker of the testbed looks at all logs every second."""

Costs = Mapping[str, float]


@dataclass(frozen=True)
class Request:
    """A request, and the beginning of the names of the threads that answer it."""

    make: Callable[[], object]
    threads: str


HANDLERS, JMX, EXPORTER = "data-plane-kafk", "RMI TCP Connect", ""
"""Beginnings of the names of threads that answer requests of each kind."""


def computed_s(pid: int, threads: str) -> float:
    """CPU time of those threads of a process whose names begin so [s]."""
    used_ns = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has ended
            if (thread / "comm").read_text().startswith(threads):
                used_ns += int((thread / "schedstat").read_text().split()[0])
    return used_ns / 1e9


def make_partitions(admin: KafkaAdmin, before: int, count: int) -> None:
    """Create topics until there are so many partitions."""
    for first in range(before, count, TOPIC_PARTITIONS):
        admin.create_topic(f"others-{first}", TopicSize(TOPIC_PARTITIONS, len(BROKERS)), {})


def cost_s(request: Request, pids: Sequence[int]) -> float:
    """CPU time of these processes for a request [s]."""
    until_s = time.monotonic() + SETTLE_S
    while time.monotonic() < until_s:
        request.make()
    found, rest = [], replace(request, make=lambda: time.sleep(ROUND_S))
    for _ in range(ROUNDS):
        used_s, took_s, number = _spent(pids, request)
        rest_s, rested_s, _ = _spent(pids, rest)
        found.append((used_s - took_s * rest_s / rested_s) / number)
    return median(found)


def _spent(pids: Sequence[int], request: Request) -> tuple[float, float, int]:
    """CPU time of the processes [s], time [s], and number of requests of a round."""

    def used_s() -> float:
        return sum(computed_s(pid, request.threads) for pid in pids)

    before_s, began_s, number = used_s(), time.monotonic(), 0
    while time.monotonic() - began_s < ROUND_S:
        request.make()
        number += 1
    return used_s() - before_s, time.monotonic() - began_s, number


def costs(requests: Mapping[str, Request], bed: Testbed) -> Costs:
    """Request → CPU time of the brokers for it [s]; a sample by JMX is one of each broker."""
    pids = [bed.pids[each] for each in BROKERS]
    return {name: cost_s(request, pids) for name, request in requests.items()}


def rows(counts: Sequence[int], wanted: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """A row for each request at each number of partitions, then what a partition more costs.

    Args:
        wanted: beginnings of the names of the requests to measure.
    """
    exporters = dict(zip(BROKERS, free_ports(len(BROKERS)), strict=True))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="redline-crowded-")))
        options = {
            each: [Exporter(EXPORTERS[each], port).java_option(folder)]
            for each, port in exporters.items()
        }
        bed = stack.enter_context(
            start(
                "default",
                brokers=len(BROKERS),
                name="crowded",
                node_jvm_options=options,
                overrides=QUIET,
            )
        )
        admin = stack.enter_context(connect(bed.bootstrap_servers))
        jvm, _ = stack.enter_context(bare_jvm())
        health = ClusterHealth(admin)
        ends = [JmxEndpoint.parse(each, bed.jmx_endpoints[each]) for each in BROKERS]
        jmx = stack.enter_context(closing(DriverJvmSource(jvm, ends, DEADLINE_S)))
        jmx.open()
        requests = {
            "all topics": Request(health.under_replicated, HANDLERS),
            "log directories of one broker": Request(
                lambda: admin.log_dirs_of(BROKERS[0], {}), HANDLERS
            ),
            "one topic": Request(lambda: health.has_topic("redline-stop"), HANDLERS),
            "list of brokers": Request(admin.describe_cluster, HANDLERS),
            "sample of two brokers by JMX": Request(jmx.sample_all, JMX),
        }
        for each, port in exporters.items():
            rules = load_rules(EXPORTERS[each])
            source = PrometheusSource([Endpoint(each, HOST, port)], rules, DEADLINE_S)
            stack.enter_context(closing(source)).open()
            requests[f"scrape, rules {EXPORTERS[each]}"] = Request(source.sample_all, EXPORTER)
        requests = {name: each for name, each in requests.items() if name.startswith(wanted)}
        found: list[Costs] = []
        for before, count in pairwise((0, *counts)):
            make_partitions(admin, before, count)
            found.append(costs(requests, bed))
            for name, spent_s in found[-1].items():
                yield f"{count:,}", name, f"{1e3 * spent_s:.2f} ms"
        for name, last_s in found[-1].items() if len(counts) > 1 else ():
            more_s = (last_s - found[0][name]) / (counts[-1] - counts[0])
            yield "one more", name, f"{1e6 * more_s:.2f} us"


@click.command()
@click.option("--partitions", default="100,3000", show_default=True, help="Numbers, in turn.")
@click.option("--request", multiple=True, help="Only requests whose names begin so; repeatable.")
def bench_crowded(partitions: str, request: tuple[str, ...]) -> None:
    """Measure what guards and samples cost brokers with many partitions."""
    click.echo("| partitions | request | CPU of the brokers |\n| --- | --- | --- |")
    for row in rows([int(each) for each in partitions.split(",")], request or ("",)):
        click.echo(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    bench_crowded()
