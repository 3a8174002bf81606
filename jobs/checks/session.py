"""Whether a Spark session can run a load on a cluster: all checks of it in one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from jobs.checks.executors import clocks_within, executor_findings
from jobs.checks.exposure import exposure_findings
from jobs.checks.finding import Finding, problems_of
from jobs.checks.settings import promised_slots, setting_findings, slot_findings
from jobs.checks.slots import await_slots, registered_slots
from jobs.checks.survey import Needs, order_of, own_facts, survey
from jobs.config import Cluster, Workload
from jobs.trials.control_server import ControlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Addresses = Mapping[int, tuple[str, int]]


@dataclass(frozen=True)
class SessionReport:
    """What was found of a session.

    Attributes:
        slots: tasks that a load may have.
        findings: of all checks that were made.
        environment: what of it belongs to the environment of a run.
    """

    slots: int
    findings: tuple[Finding, ...]
    environment: Mapping[str, str]


def look_at_session(
    spark: SparkSession,
    control: ControlServer,
    cluster: Cluster,
    workload: Workload,
    addresses: Addresses,
    slots: int | None = None,
    network_namespace: str = "",
) -> SessionReport:
    """Check settings, slots, and every executor from inside.

    Args:
        control: where tasks report to the driver.
        addresses: broker id → advertised (host, port), to be reached from every executor.
        slots: tasks that were asked for; None for all that the session has.
        network_namespace: file of the one from which brokers are to be reached; empty for the
            executors' own.

    Raises:
        ConfigError: the executors could not be looked at.
    """
    context = spark.sparkContext
    settings, master = dict(context.getConf().getAll()), context.master or ""
    found = setting_findings(settings)
    if problems_of(found):
        return SessionReport(0, tuple(found), {})
    least = 2 if workload.consumers.groups else 1
    wanted = slots or promised_slots(settings, master)
    if master.startswith("local"):  # all that there will be is there
        ready = await_slots(partial(registered_slots, context), wanted, deadline_s=0.0)
    else:
        ready = await_slots(partial(registered_slots, context), wanted)
    found += slot_findings(ready.count, wanted or least, ready.waited_s)
    if problems_of(found):
        return SessionReport(ready.count, tuple(found), {})
    usable = min(ready.count, slots or ready.count)
    needs = Needs.of(workload, cluster)
    with control.channel(ready.count) as channel:
        executors = survey(
            spark, ready.count, order_of(needs, addresses, channel.address, network_namespace)
        )
    hosts = [host for host, _ in addresses.values()]
    found += exposure_findings(cluster, hosts, settings, master)
    places = {str(broker): place for broker, place in addresses.items()}
    found += executor_findings(executors, own_facts(needs), places)
    environment = {
        "spark.slots": str(usable),
        "spark.executors": str(len({each.executor for each in executors})),
        "executors.clocks_within": clocks_within(executors) or "unknown",
    }
    return SessionReport(usable, tuple(found), environment)
