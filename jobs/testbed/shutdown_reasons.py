"""The reasons for which a testbed ends, and their words for people."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from jobs.testbed.logs import error_lines
from jobs.testbed.processes import NodeProcess

DISK_RESERVE_BYTES = 500_000_000
"""Free space of the file system below which the testbed is stopped [B]."""


class StopRequestedError(Exception):
    """The owner or a signal requests the end of the testbed, which did not fail itself.

    Attributes:
        is_hasty: True when the brokers are killed at once.
        reason: the owner's failure, for which the logs are kept; empty without a failure.
    """

    def __init__(self, *, is_hasty: bool = False, reason: str = "") -> None:
        super().__init__()
        self.is_hasty = is_hasty
        self.reason = reason


class TestbedFailedError(Exception):
    """The testbed failed; `kind` is one of `jobs.testbed.errors`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class NodeEndedError(Exception):
    """A process of the testbed ended unexpectedly."""

    def __init__(self, process: NodeProcess) -> None:
        super().__init__()
        self.process = process


def describe_end(process: NodeProcess, what: str | None = None) -> str:
    """Describe how a process ended, with the error lines of its logs.

    Args:
        process: the process.
        what: name of the process for people; the node's title by default.
    """
    code = process.exit_code()
    how = (
        f"was ended by {signal.Signals(-code).name}" if code and code < 0 else f"exited with {code}"
    )
    said = error_lines(process.node)
    begin = f"{what or process.node.title} {how}"
    if not said:
        return f"{begin} and left no message"
    return f"{begin} and said " + ", ".join(f'"{line}"' for line in said)


def describe_failed_start(process: NodeProcess, profile: str, what: str | None = None) -> str:
    """Describe the end of a process that did not get ready, and the remedy.

    Args:
        process: the process.
        profile: name of the profile with its properties.
        what: see `describe_end`.
    """
    remedy = f"If it names a property, correct it in profile {profile} or in your override"
    return f"{describe_end(process, what)}. {remedy}"


def disk_problem(
    folder: Path,
    used_bytes: int,
    limit_bytes: int,
    free_bytes_of: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
) -> str | None:
    """The reason for which the testbed must not write more; None without one.

    Args:
        folder: a folder of the file system that it writes to.
        used_bytes: size of its log dirs [B].
        limit_bytes: size that they may have [B].
        free_bytes_of: folder → free bytes of its file system.
    """
    if used_bytes > limit_bytes:
        return (
            f"its log dirs hold {used_bytes / 1e9:.2f} GB, more than disk_limit_bytes, "
            f"{limit_bytes / 1e9:.2f} GB; lower log.retention.bytes, use fewer partitions, or "
            "raise the limit"
        )
    free_bytes = free_bytes_of(folder)
    if free_bytes < DISK_RESERVE_BYTES:
        return (
            f"the disk of {folder} has {free_bytes / 1e9:.2f} GB free, and the testbed keeps "
            f"{DISK_RESERVE_BYTES / 1e9:.1f} GB free; delete files, or name a folder on another "
            "disk in REDLINE_CACHE"
        )
    return None
