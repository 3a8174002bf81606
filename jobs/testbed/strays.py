"""Processes that belong to a testbed without being children of its supervisor."""

from __future__ import annotations

import logging

import psutil

from jobs.testbed.jvm import MARKER
from jobs.testbed.spark import TESTBED_VARIABLE

log = logging.getLogger(__name__)

_END_DEADLINE_S = 10.0


def has_testbed_id(process: psutil.Process, testbed_id: str) -> bool:
    """True when the process has the testbed's id on its command line or in its environment.

    Raises:
        psutil.NoSuchProcess, psutil.AccessDenied: it ended meanwhile, or is not ours.
    """
    if f"{MARKER}{testbed_id}" in process.cmdline():
        return True
    return process.environ().get(TESTBED_VARIABLE) == testbed_id


def inheriting_processes(testbed_id: str) -> list[psutil.Process]:
    """What Spark started for a testbed: executors and their Python workers."""
    mine = psutil.Process().uids().real
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.uids().real == mine:
                variables = process.environ()
                if variables.get(TESTBED_VARIABLE) == testbed_id:
                    found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # ended meanwhile, or not ours
            continue
    return found


def end_processes(processes: list[psutil.Process]) -> None:
    """Kill processes and wait until they are gone; their data is to be deleted anyway."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:  # it ended by itself
            continue
    _, alive = psutil.wait_procs(processes, timeout=_END_DEADLINE_S)
    for process in alive:
        log.error("process %d does not end although it was killed", process.pid)
