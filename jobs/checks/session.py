"""All checks whether a Spark session can run a load on a cluster, in one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from jobs.checks.executors import clocks_within, executor_findings
from jobs.checks.exposure import exposure_findings
from jobs.checks.finding import Finding, problems_of
from jobs.checks.settings import (
    driver_address,
    promised_slots,
    setting_findings,
    slot_findings,
)
from jobs.checks.survey import Needs, driver_facts, probe_order, survey
from jobs.config import Cluster, Workload
from jobs.spark.slots import await_slots, registered_slots
from jobs.trials.control_server import ControlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Addresses = Mapping[int, tuple[str, int]]


@dataclass(frozen=True)
class SessionReport:
    """The result of the checks of a session.

    Attributes:
        slots: number of tasks that a load can have.
        findings: findings of all checks.
        environment: facts of the session for the environment of a run.
    """

    slots: int
    findings: tuple[Finding, ...]
    environment: Mapping[str, str]


def check_session(
    spark: SparkSession,
    control: ControlServer,
    cluster: Cluster,
    workload: Workload,
    addresses: Addresses,
    slots: int | None = None,
    network_namespace: str = "",
) -> SessionReport:
    """Check settings, slots, and each executor by a task that runs on it.

    Args:
        control: server of the control channel, over which tasks report to the driver.
        addresses: broker id → advertised (host, port), which every executor must reach.
        slots: requested number of tasks; None for all slots of the session.
        network_namespace: file of the network namespace from which executors open connections to
            the brokers; empty for their own.

    Raises:
        ConfigError: the tasks on the executors failed.
    """
    context = spark.sparkContext
    settings, master = dict(context.getConf().getAll()), context.master or ""
    found = setting_findings(settings)
    if problems_of(found):
        return SessionReport(0, tuple(found), {})
    least = workload.slots_least
    wanted = slots or promised_slots(settings, master)
    if master.startswith("local"):  # all slots exist from the start
        ready = await_slots(partial(registered_slots, context), wanted, deadline_s=0.0)
    else:
        ready = await_slots(partial(registered_slots, context), wanted)
    address = driver_address(settings)
    found += slot_findings(ready.count, wanted or least, ready.waited_s, address)
    if problems_of(found):
        return SessionReport(ready.count, tuple(found), {})
    usable = min(ready.count, slots or ready.count)
    needs = Needs.of(workload, cluster)
    with control.channel(ready.count) as channel:
        executors = survey(
            spark, ready.count, probe_order(needs, addresses, channel.address, network_namespace)
        )
    hosts = [host for host, _ in addresses.values()]
    found += exposure_findings(cluster, hosts, settings, master)
    places = {str(broker): place for broker, place in addresses.items()}
    found += executor_findings(executors, driver_facts(needs), places)
    environment = {
        "spark.slots": str(usable),
        "spark.executors": str(len({each.executor for each in executors})),
        "executors.clocks_within": clocks_within(executors) or "unknown",
    }
    return SessionReport(usable, tuple(found), environment)
