"""The share of the machine's CPU that a broker may use.

A control group with a CPU quota limits it where this process may create one
(`jobs.testbed.cpu_groups`); a quota can be a part of a core. Elsewhere CPU affinity limits it,
which needs no privileges but whole cores.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from metrics.common.errors import ConfigError


def available_cores() -> tuple[int, ...]:
    """The numbers of the cores that this process may use; empty where they are unknown."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return tuple(sorted(affinity(0))) if affinity else ()


def require_cores(cpus: float | None, available: Sequence[int], has_quota: bool) -> None:
    """Refuse a number of cores to which brokers cannot be limited on this machine.

    Args:
        has_quota: whether a control group can limit a broker to a part of a core.

    Raises:
        ConfigError: the machine has too few cores, or does not support CPU affinity.
    """
    if cpus is not None and cpus % 1 and not has_quota:
        raise ConfigError(
            f"cpus is {cpus:g}, and CPU-quota cgroups cannot be created here; expected a whole "
            "number of cores, to which CPU affinity limits a broker; round it, or run with the "
            "privileges to create cgroups"
        )
    if cpus is not None and not 0 < cpus <= len(available):
        if not available:
            raise ConfigError(
                f"cpus is {cpus:g}, and this system does not support CPU affinity; expected no "
                "cpus; leave the key out"
            )
        raise ConfigError(
            f"cpus is {cpus:g}, and this process may use {len(available)} cores; expected 1 to "
            f"{len(available)} for each broker; lower it"
        )


def cores_of(broker_id: int, cpus: float | None, available: Sequence[int]) -> tuple[int, ...]:
    """The cores of a broker, spread so that few brokers share a core; empty for all cores.

    Args:
        broker_id: from 1.
        cpus: number of cores for each broker, a whole number; None for all.
    """
    if cpus is None:
        return ()
    first = (broker_id - 1) * int(cpus)
    return tuple(sorted(available[(first + n) % len(available)] for n in range(int(cpus))))
