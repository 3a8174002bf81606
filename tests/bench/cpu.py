"""CPU time of another process with all of its threads."""

from __future__ import annotations

import time

import psutil

_SCHEDULED_TIME = 2  # CPUCLOCK_SCHED of Linux


def cpu_s(pid: int) -> float:
    """User and system time of a process, including threads that have ended [CPU-s].

    Linux has a clock for each process, with a resolution of a nanosecond; on other systems psutil
    reads the time with a resolution of 10 ms.

    Raises:
        psutil.NoSuchProcess: the process has ended.
    """
    try:
        return time.clock_gettime((~pid << 3) | _SCHEDULED_TIME)
    except OSError:
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)
