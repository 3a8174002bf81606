"""Processes of a testbed that are not children of its supervisor."""

from __future__ import annotations

import logging

import psutil

from jobs.testbed.jvm import MARKER
from jobs.testbed.spark import TESTBED_VARIABLE

log = logging.getLogger(__name__)

_END_DEADLINE_S = 10.0


def has_testbed_id(process: psutil.Process, testbed_id: str) -> bool:
    """Whether the process has the testbed's id on its command line or in its environment.

    Raises:
        psutil.NoSuchProcess, psutil.AccessDenied: it has ended, or belongs to another user.
    """
    if f"{MARKER}{testbed_id}" in process.cmdline():
        return True
    return process.environ().get(TESTBED_VARIABLE) == testbed_id


def inheriting_processes(testbed_id: str) -> list[psutil.Process]:
    """The executors and Python workers that Spark started for a testbed."""
    mine = psutil.Process().uids().real
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.uids().real == mine:
                variables = process.environ()
                if variables.get(TESTBED_VARIABLE) == testbed_id:
                    found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # ended, or another user's
            continue
    return found


def end_processes(processes: list[psutil.Process]) -> None:
    """Kill processes and wait until they have ended."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:  # it has ended
            continue
    _, alive = psutil.wait_procs(processes, timeout=_END_DEADLINE_S)
    for process in alive:
        log.error("process %d does not end although it was killed", process.pid)
