"""Why a testbed comes to its end, and how that is said to people."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from jobs.testbed.logs import error_lines
from jobs.testbed.processes import NodeProcess

DISK_RESERVE_BYTES = 500_000_000
"""The testbed is stopped before the file system has less free than this [B]."""


class StopRequestedError(Exception):
    """Somebody wants the testbed to end, which is no failure of its own.

    Attributes:
        is_hasty: True when there is no time to let the brokers end by themselves.
        reason: what failed elsewhere, which makes the logs worth keeping; or empty.
    """

    def __init__(self, *, is_hasty: bool = False, reason: str = "") -> None:
        super().__init__()
        self.is_hasty = is_hasty
        self.reason = reason


class TestbedFailedError(Exception):
    """The testbed cannot go on; `kind` is one of `jobs.testbed.errors`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class NodeEndedError(Exception):
    """A process ended by itself."""

    def __init__(self, process: NodeProcess) -> None:
        super().__init__()
        self.process = process


def describe_end(process: NodeProcess, what: str | None = None) -> str:
    """How a process ended and why, as far as its logs say.

    Args:
        process: the process.
        what: what it was, for people; the node by default.
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
    """As `describe_end`, for a process that did not get ready; with the remedy.

    Args:
        process: the process.
        profile: name of the profile that its properties come from.
        what: as `describe_end`.
    """
    remedy = f"If it names a property, correct that in profile {profile} or where you override it"
    return f"{describe_end(process, what)}. {remedy}"


def disk_problem(folder: Path, used_bytes: int, limit_bytes: int) -> str | None:
    """Why the testbed must not write more, or None.

    Args:
        folder: a folder of the file system that it writes to.
        used_bytes: what its log dirs hold [B].
        limit_bytes: what they may hold [B].
    """
    if used_bytes > limit_bytes:
        return (
            f"its log dirs hold {used_bytes / 1e9:.2f} GB, more than disk_limit_bytes, "
            f"{limit_bytes / 1e9:.2f} GB; lower log.retention.bytes, use fewer partitions, or "
            "raise the limit"
        )
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < DISK_RESERVE_BYTES:
        return (
            f"the disk of {folder} has {free_bytes / 1e9:.2f} GB left, and the testbed leaves "
            f"{DISK_RESERVE_BYTES / 1e9:.1f} GB alone; free some space, or name another disk in "
            "REDLINE_CACHE"
        )
    return None
