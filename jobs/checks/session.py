"""All checks of a Spark session in one call: its settings, its slots and its executors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from jobs.checks.exposure import exposure_findings
from jobs.checks.finding import Finding, ok, problem, problems_of
from jobs.checks.survey import (
    Needs,
    clocks_within,
    driver_facts,
    executor_findings,
    probe_order,
    survey,
)
from jobs.config import Cluster, Workload
from jobs.spark.session import await_slots, registered_slots
from jobs.trials.control_server import ControlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECK = "Spark's settings"

_REFUSED = {
    "spark.dynamicAllocation.enabled": (
        "a load is one barrier stage, which Spark cannot run if the number of executors changes"
    ),
    "spark.speculation": "a second copy of a task would offer its load twice",
}


def setting_findings(settings: Mapping[str, str]) -> list[Finding]:
    """Findings about Spark settings with which a load cannot run.

    Args:
        settings: settings of the Spark context, by Spark's names.
    """
    found = [
        problem(
            CHECK,
            f"{name} is {settings[name]}, and {why}",
            "false",
            f"set {name}=false (spark-submit --conf {name}=false)",
        )
        for name, why in _REFUSED.items()
        if settings.get(name, "false").strip().lower() == "true"
    ]
    return found or [ok(CHECK, "no dynamic allocation, no speculation")]


def promised_slots(settings: Mapping[str, str], master: str) -> int | None:
    """Number of tasks that the session can run at the same time once all executors have registered.
    The number follows from the session's settings.

    Args:
        settings: settings of the Spark context, by Spark's names.
        master: master URL of the Spark context.

    Returns:
        None if the settings do not limit the number of tasks. On a standalone cluster, for example,
        a session without a limit gets all cores.
    """
    of_task = _number(settings, "spark.task.cpus") or 1
    if re.match(r"spark://", master):
        cores = _number(settings, "spark.cores.max")
        of_executor = _number(settings, "spark.executor.cores") or of_task
        # All executors have the same size, so remaining cores that are too few for an executor are
        # unused.
        return None if cores is None else cores // of_executor * (of_executor // of_task)
    if re.match(r"yarn|k8s://", master):
        executors = _number(settings, "spark.executor.instances")
        of_executor = _number(settings, "spark.executor.cores") or 1
        return None if executors is None else executors * (of_executor // of_task)
    return None


def driver_address(settings: Mapping[str, str]) -> str:
    """The address of Spark's driver for executors, as host:port; `?` stands for an unknown host or
    port.
    """
    return f"{settings.get('spark.driver.host', '?')}:{settings.get('spark.driver.port', '?')}"


def slot_findings(slots: int, wanted: int, waited_s: float, driver: str = "") -> list[Finding]:
    """Findings about the number of slots for the tasks of a load.

    Args:
        driver: the driver's address for executors, host:port; the finding contains this address if
            no executor registers.
        slots: number of tasks that the registered executors can run at the same time.
        wanted: required number of slots.
        waited_s: time spent waiting for executors [s].
    """
    check = "Spark's slots"
    if slots >= wanted:
        return [ok(check, f"{slots} tasks can run at once")]
    missing = wanted - slots
    some = f"{missing} slot is" if missing == 1 else f"{missing} slots are"
    if not slots and driver:
        return [
            problem(
                check,
                f"no executor has registered within {waited_s:.0f} s",
                f"executors with {wanted} slots in total, which connect to the driver at {driver}",
                "see the cluster manager's page for executors that ended early; if executors "
                "cannot reach this address, set spark.driver.host to an address that they can "
                "reach (behind NAT the external address, in a pod the name of the headless "
                "service), and set spark.driver.bindAddress=0.0.0.0, a fixed spark.driver.port "
                "and a fixed spark.blockManager.port",
            )
        ]
    return [
        problem(
            check,
            f"{some} missing: after {waited_s:.0f} s the registered executors can run {slots} "
            "tasks at once",
            f"{wanted} slots, because all tasks of a load run at the same time",
            "free cores of the Spark cluster, or request fewer slots (--slots, spark.cores.max, "
            "spark.executor.instances)",
        )
    ]


def _number(settings: Mapping[str, str], name: str) -> int | None:
    text = settings.get(name, "").strip()
    return int(text) if text.isdecimal() else None


Addresses = Mapping[int, tuple[str, int]]


@dataclass(frozen=True)
class SessionReport:
    """The result of all checks of a Spark session.

    Attributes:
        slots: maximum number of tasks of a load.
        findings: findings of all checks.
        environment: facts about the session, for the environment of a run.
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
    """Check the settings and the slots of the session. Also check each executor, by a task that
    runs on this executor.

    Args:
        control: the server of the control channel, through which tasks report to the driver.
        addresses: broker id → advertised (host, port). Every executor must reach the addresses of
            all brokers.
        slots: requested number of tasks; None for all slots of the session.
        network_namespace: file of the network namespace in which executors connect to the brokers;
            empty for the default namespace.

    Raises:
        ConfigError: the tasks of the survey failed.
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
