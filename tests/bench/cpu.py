"""CPU time of another process, all of its threads together."""

from __future__ import annotations

import time

import psutil

_SCHEDULED_TIME = 2  # CPUCLOCK_SCHED of Linux


def cpu_s(pid: int) -> float:
    """User and system time that the process has used, also in threads that ended [CPU-s].

    Linux keeps a clock for each process, exact to the nanosecond; on other systems psutil reads the
    time, exact to 10 ms.

    Raises:
        psutil.NoSuchProcess: it has ended.
    """
    try:
        return time.clock_gettime((~pid << 3) | _SCHEDULED_TIME)
    except OSError:
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)
