"""Looking at processes and ports from outside."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

PATIENCE_S = 240.0
"""What only ends a test that hangs, a little before pytest does [s]."""


def processes_with(text: str) -> list[int]:
    """Ids of living processes, zombies aside, with this text in their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            is_dead = process.status() == psutil.STATUS_ZOMBIE
            if not is_dead and any(text in part for part in process.cmdline()):
                found.append(process.pid)
        except psutil.NoSuchProcess:  # ended meanwhile
            continue
    return found


def becomes(condition: Callable[[], bool], deadline_s: float = PATIENCE_S) -> bool:
    """Wait until the condition holds; False when it does not in time [s]."""
    ends_s = time.monotonic() + deadline_s
    while time.monotonic() < ends_s:
        if condition():
            return True
        time.sleep(0.01)
    return condition()
