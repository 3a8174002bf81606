"""Cost of sampling for the driver: the testbed's brokers, polled under many names."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import click
import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from jobs.testbed.launcher import start
from metrics.sources.bean_poller import BeanAnswer
from metrics.sources.beans import beans_for, readings_of
from metrics.sources.driver_jvm import DriverJvmSource
from metrics.sources.sample import BrokerSample
from metrics.sources.sampler import Sampler
from metrics.sources.source import JmxEndpoint
from tests.bench.cpu import cpu_s

INTERVAL_S = 1.0
DEADLINE_S = 2.0
SETTLE_S = 10.0
"""Time of sampling before the measurement, in which the driver's JVM compiles its code [s]."""


def java_gateway(options: Sequence[str]) -> tuple[JavaGateway, subprocess.Popen[bytes]]:
    """A gateway to a JVM that has only Spark's Java compiler, and the JVM's process."""
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
    """The py4j view of such a JVM, and its process id."""
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
    """A source of a few brokers under many names, each with its own connection and thread."""

    def __init__(self, jvm: Any, brokers: Sequence[JmxEndpoint], names: int) -> None:
        endpoints = [replace(brokers[i % len(brokers)], node_id=i) for i in range(names)]
        super().__init__(jvm, endpoints, DEADLINE_S)

    def _answers(self, deadline_s: float) -> list[BeanAnswer]:
        return [
            replace(each, values={_under(each.node_id, name): v for name, v in each.values.items()})
            for each in super()._answers(deadline_s)
        ]


def _under(node_id: int, name: str) -> str:
    """The name of a reading, for the version with another node id."""
    return f"version:{node_id}" if name.startswith("version:") else name


@dataclass(frozen=True)
class Cost:
    """The cost of sampling.

    Attributes:
        names: number of brokers that the source sees.
        beans, readings: numbers of beans and of readings of each broker.
        expected, taken, failed: numbers of samples of single brokers.
        spread_s: mean time from the first to the last broker of a sample [s].
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
    """Sample the brokers every second under this number of names.

    Args:
        jvm: py4j's view of the driver's JVM.
        jvm_pid: process id of the JVM.
        brokers: the real brokers.
        names: number of brokers that the source sees.
        duration_s, settle_s: duration of the measurement, and of the sampling before it [s].
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
    """All samples of `duration_s` [s]."""
    with Sampler(source, INTERVAL_S) as sampler:
        time.sleep(duration_s - INTERVAL_S / 2)  # the last sample has started by then
        return sampler.stop()


def line_of(cost: Cost) -> str:
    """One row of the table."""
    return (
        f"  {cost.names:7}{cost.beans:7}{cost.readings:10}{cost.taken:9}{cost.expected:10}"
        f"{cost.failed:8}{cost.spread_s * 1000:10.0f}{cost.driver_share:13.1%}"
    )


@click.command()
@click.option("--brokers", default=3, show_default=True, help="Real brokers to start.")
@click.option(
    "--names", default="100,3", show_default=True, help="Numbers of names, one after the other."
)
@click.option("--seconds", default=30.0, show_default=True, help="Duration of sampling [s].")
def bench_sampling(brokers: int, names: str, seconds: float) -> None:
    """Measure the driver's cost of sampling every second, by JMX in its JVM."""
    click.echo("Sampling every second by the driver's JVM; shares of one core include Python.")
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
