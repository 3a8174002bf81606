"""What sampling brokers costs the driver: the testbed's brokers, polled under many names."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import click
import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from jobs.testbed.launcher import start
from metrics.sources.beans import beans_for, readings_of
from metrics.sources.driver_jvm import DriverJvmSource
from metrics.sources.sample import BrokerSample
from metrics.sources.sampler import Sampler
from metrics.sources.source import JmxEndpoint, NodeInfo
from tests.bench.cpu import cpu_s

INTERVAL_S = 1.0
DEADLINE_S = 2.0
SETTLE_S = 10.0
"""Samples before those that count; the many names come first, so that the driver's JVM has
compiled what it does by then, as in a run of an hour [s]."""


def java_gateway(options: Sequence[str]) -> tuple[JavaGateway, subprocess.Popen[bytes]]:
    """A JVM with Spark's compiler and nothing else, and a way to talk to it."""
    jars = Path(pyspark.__file__).parent.glob("jars/*.jar")
    names = ("janino", "commons-compiler")
    classpath = ":".join(str(jar) for jar in jars if jar.name.startswith(names))
    launched: Any = launch_gateway(
        classpath=classpath, javaopts=list(options), die_on_exit=True, return_proc=True
    )
    port, process = launched
    return JavaGateway(gateway_parameters=GatewayParameters(port=port)), process


@contextmanager
def bare_jvm(*options: str) -> Iterator[tuple[Any, int]]:
    """The view of such a JVM and its process id."""
    gateway, process = java_gateway(options)
    try:
        yield gateway.jvm, process.pid
    finally:
        gateway.close()
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


class Crowd(DriverJvmSource):
    """A few brokers under many names: each name has a connection and a thread of its own."""

    def __init__(self, jvm: Any, brokers: Sequence[JmxEndpoint], names: int) -> None:
        self._brokers = brokers
        endpoints = [replace(brokers[i % len(brokers)], node_id=i) for i in range(names)]
        super().__init__(jvm, endpoints, DEADLINE_S)

    def _node(self, endpoint: JmxEndpoint, values: Mapping[str, str]) -> NodeInfo:
        real = self._brokers[endpoint.node_id % len(self._brokers)]
        return replace(super()._node(real, values), node_id=endpoint.node_id)


@dataclass(frozen=True)
class Cost:
    """What sampling took.

    Attributes:
        names: brokers, as the source sees them.
        beans: of each, and the readings of them.
        expected, taken, failed: samples of single brokers.
        spread_s: from the first to the last broker of one sample, on average [s].
        driver_share: CPU time of the driver's JVM and of Python per second [cores].
    """

    names: int
    beans: int
    readings: int
    expected: int
    taken: int
    failed: int
    spread_s: float
    driver_share: float


def measure(
    jvm: Any,
    jvm_pid: int,
    brokers: Sequence[JmxEndpoint],
    names: int,
    duration_s: float,
    settle_s: float = SETTLE_S,
) -> Cost:
    """Sample the brokers under so many names every second.

    Args:
        jvm: py4j's view of the driver's JVM.
        jvm_pid: its process.
        brokers: the real ones.
        names: how many brokers the source is to see.
        duration_s, settle_s: what counts, and what comes before it [s].
    """
    with closing(Crowd(jvm, brokers, names)) as source:
        source.open()
        node = next(iter(source.nodes.values()))
        beans = beans_for(node.version, node.roles)
        _sample_for(source, settle_s)
        pids = {jvm_pid, os.getpid()}
        before_s, began_s = sum(map(cpu_s, pids)), time.monotonic()
        samples = _sample_for(source, duration_s)
        used_s, lasted_s = sum(map(cpu_s, pids)) - before_s, time.monotonic() - began_s
    good = [sample for sample in samples if sample.error is None]
    rounds = [samples[i : i + names] for i in range(0, len(samples), names)]
    return Cost(
        names=names,
        beans=len(beans),
        readings=len(readings_of(beans)),
        expected=names * int(duration_s / INTERVAL_S),
        taken=len(good),
        failed=len(samples) - len(good),
        spread_s=fmean(max(x.at_s for x in each) - min(x.at_s for x in each) for each in rounds),
        driver_share=used_s / lasted_s,
    )


def _sample_for(source: DriverJvmSource, duration_s: float) -> list[BrokerSample]:
    """All samples of so many intervals."""
    with Sampler(source, INTERVAL_S) as sampler:
        time.sleep(duration_s - INTERVAL_S / 2)  # the last one is well under way by then
        return sampler.stop()


def line_of(cost: Cost) -> str:
    """One row of the table."""
    return (
        f"  {cost.names:7}{cost.beans:7}{cost.readings:10}{cost.taken:9}{cost.expected:10}"
        f"{cost.failed:8}{cost.spread_s * 1000:10.0f}{cost.driver_share:13.1%}"
    )


@click.command()
@click.option("--brokers", default=3, show_default=True, help="Real brokers to start.")
@click.option("--names", default="100,3", show_default=True, help="How many to sample, in turn.")
@click.option("--seconds", default=30.0, show_default=True, help="How long to sample [s].")
def bench_sampling(brokers: int, names: str, seconds: float) -> None:
    """Measure what sampling costs the driver, every second, by JMX in its JVM."""
    click.echo("Every second, by the driver's JVM; the share is of one core, Python's included.")
    click.echo("    names  beans  readings    taken  expected  failed spread ms driver share")
    with start(brokers=brokers, name="bench-sampling") as testbed, bare_jvm() as (jvm, pid):
        endpoints = [
            JmxEndpoint.parse(broker, address)
            for broker, address in sorted(testbed.jmx_endpoints.items())
        ]
        for count in map(int, names.split(",")):
            click.echo(line_of(measure(jvm, pid, endpoints, count, seconds)))


if __name__ == "__main__":
    bench_sampling()
