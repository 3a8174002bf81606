"""Rules on Spark's settings: those that a load does not support, and the slots they promise."""

from __future__ import annotations

import re
from collections.abc import Mapping

from jobs.checks.finding import Finding, ok, problem

CHECK = "Spark's settings"

_REFUSED = {
    "spark.dynamicAllocation.enabled": (
        "a load is one barrier stage, which Spark cannot run while it adds and removes executors"
    ),
    "spark.speculation": "a second copy of a task would offer its load twice",
}


def setting_findings(settings: Mapping[str, str]) -> list[Finding]:
    """Findings about settings that a load does not support.

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
    """Number of tasks that the session can run at once by its settings, once executors register.

    Args:
        settings: settings of the Spark context, by Spark's names.
        master: master URL of the Spark context.

    Returns:
        None where the settings have no number, such as on a standalone cluster without a limit,
        which gives a session all of its cores.
    """
    of_task = _number(settings, "spark.task.cpus") or 1
    if re.match(r"spark://", master):
        cores = _number(settings, "spark.cores.max")
        of_executor = _number(settings, "spark.executor.cores") or of_task
        # Executors have one size: cores that are too few for a whole executor are not used.
        return None if cores is None else cores // of_executor * (of_executor // of_task)
    if re.match(r"yarn|k8s://", master):
        executors = _number(settings, "spark.executor.instances")
        of_executor = _number(settings, "spark.executor.cores") or 1
        return None if executors is None else executors * (of_executor // of_task)
    return None


def driver_address(settings: Mapping[str, str]) -> str:
    """The address of Spark's driver to which executors connect, as far as the settings name it."""
    return f"{settings.get('spark.driver.host', '?')}:{settings.get('spark.driver.port', '?')}"


def slot_findings(slots: int, wanted: int, waited_s: float, driver: str = "") -> list[Finding]:
    """Findings about the slots for the tasks of a load.

    Args:
        driver: the address to which executors connect, host:port; named where none registers.
        slots: tasks that can run at once on the executors that have registered.
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
                f"no executor has registered within {waited_s:.0f} s, and {wanted} slots are "
                "needed",
                f"executors that start and connect to the driver at {driver}",
                "look for executors that ended early in the cluster manager's page; where they "
                "cannot reach this address, set spark.driver.host to one that they can reach "
                "(behind NAT the outer one, in a pod the name of its headless service), with "
                "spark.driver.bindAddress=0.0.0.0, a fixed spark.driver.port and "
                "spark.blockManager.port",
            )
        ]
    return [
        problem(
            check,
            f"{some} missing: after {waited_s:.0f} s the executors that have registered can run "
            f"{slots} tasks at once",
            f"{wanted}, as all tasks of a load run at the same time",
            "free cores of the Spark cluster, or request fewer (--slots, spark.cores.max, "
            "spark.executor.instances)",
        )
    ]


def _number(settings: Mapping[str, str], name: str) -> int | None:
    text = settings.get(name, "").strip()
    return int(text) if text.isdecimal() else None
