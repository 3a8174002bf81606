"""The lock of a run: it admits one driver, as two would mix their files and rows."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TextIO

from metrics.common.errors import TryLaterError
from metrics.reporting.files import NOT_OFFERED, require_place, write_atomic

FILE = ".driver"
"""The lock file in the run's folder; it names the driver. The system unlocks it at every end."""


@contextmanager
def run_lock(folder: Path, holder: str) -> Iterator[bool]:
    """Hold the lock of the run in a folder.

    The cluster's lock excludes a second driver on every machine. This lock needs no cluster: it
    excludes one before the cluster is opened, and also with --no-lock, on all machines that share
    the folder.

    Args:
        holder: the name of this driver, which a second driver reports.

    Yields:
        False where the file system of the folder has no locks, else True.

    Raises:
        TryLaterError: another process holds the lock.
        ConfigError: the folder is not writable.
    """
    path = folder / FILE
    require_place("--out", path)
    folder.mkdir(parents=True, exist_ok=True)
    file, text = _locked(path), f"{holder}, process {os.getpid()}\n"
    if file is None:  # the file still shows that a run is active
        write_atomic(path, text)
    else:
        file.write(text)
        file.flush()
    with file or nullcontext():
        try:
            yield file is not None
        finally:
            path.unlink(missing_ok=True)


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of a run.

    The answer is True for a lock file on a file system without locks, as the run may be running.
    """
    path = folder / FILE
    if not path.exists():
        return False
    try:
        with _opened(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _opened(path: Path) -> TextIO:
    """Open the lock file for reading and writing, without appending or truncating."""
    return os.fdopen(
        os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+", encoding="utf-8"
    )


def _locked(path: Path) -> TextIO | None:
    """The locked file of a run, empty; None where the file system has no locks."""
    while True:
        try:
            file = _opened(path)
        except OSError as error:
            if error.errno in NOT_OFFERED:
                return None
            raise
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = file.read().strip() or "another process"
            file.close()
            if error.errno in NOT_OFFERED:
                return None
            if not isinstance(error, BlockingIOError):
                raise
            raise TryLaterError(
                f"{holder} is running in {path.parent}; expected one driver for each run; wait for "
                "its end, or stop it"
            ) from None
        if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
            file.truncate(0)
            return file
        file.close()  # the holder ended and removed the file in the meantime
