"""How much of the machine's CPU a broker may use.

By a quota of a control group where this process may make one (`jobs.testbed.cpu_groups`), which
takes parts of a core too; else by CPU affinity, which needs no rights.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from metrics.common.errors import ConfigError


def available_cores() -> tuple[int, ...]:
    """Cores that this process may use, by their numbers; empty where the system does not tell."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return tuple(sorted(affinity(0))) if affinity else ()


def require_cores(cpus: float | None, available: Sequence[int], has_quota: bool) -> None:
    """Refuse a number of cores that brokers cannot be held to here.

    Args:
        has_quota: whether a control group can give them a part of a core.

    Raises:
        ConfigError: the machine has fewer, or does not let processes be held to some.
    """
    if cpus is not None and cpus % 1 and not has_quota:
        raise ConfigError(
            f"cpus is {cpus:g}, and this machine lets nobody make control groups with a quota of "
            "CPU time; expected a whole number of cores, to which CPU affinity holds a broker; "
            "round it, or run with the rights to make them"
        )
    if cpus is not None and not 0 < cpus <= len(available):
        there = f"may use {len(available)}" if available else "holds no process to some of its own"
        raise ConfigError(
            f"cpus is {cpus:g}, and this machine {there}; expected "
            f"{f'1 to {len(available)}' if available else 'none'} of them for each broker; "
            f"{'lower it' if available else 'leave cpus out'}"
        )


def cores_of(broker_id: int, cpus: float | None, available: Sequence[int]) -> tuple[int, ...]:
    """Cores of a broker, spread over the machine so that few brokers share one; empty for all.

    Args:
        broker_id: from 1.
        cpus: how many each broker gets, a whole number; None for all.
    """
    if cpus is None:
        return ()
    first = (broker_id - 1) * int(cpus)
    return tuple(sorted(available[(first + n) % len(available)] for n in range(int(cpus))))
