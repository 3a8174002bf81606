"""Which cores of the machine a broker may use: CPU affinity, which needs no rights."""

from __future__ import annotations

import os
from collections.abc import Sequence

from search.errors import ConfigError


def available_cores() -> tuple[int, ...]:
    """Cores that this process may use, by their numbers; empty where the system does not tell."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return tuple(sorted(affinity(0))) if affinity else ()


def require_cores(cpus: int | None, available: Sequence[int]) -> None:
    """Refuse a number of cores that brokers cannot be held to here.

    Raises:
        ConfigError: the machine has fewer, or does not let processes be held to some.
    """
    if cpus is not None and not 1 <= cpus <= len(available):
        there = f"may use {len(available)}" if available else "holds no process to some of its own"
        raise ConfigError(
            f"cpus is {cpus}, and this machine {there}; expected "
            f"{f'1 to {len(available)}' if available else 'none'} of them for each broker; "
            f"{'lower it' if available else 'leave cpus out'}"
        )


def cores_of(broker_id: int, cpus: int | None, available: Sequence[int]) -> tuple[int, ...]:
    """Cores of a broker, spread over the machine so that few brokers share one; empty for all.

    Args:
        broker_id: from 1.
        cpus: how many each broker gets; None for all.
    """
    if cpus is None:
        return ()
    first = (broker_id - 1) * cpus
    return tuple(sorted(available[(first + n) % len(available)] for n in range(cpus)))
