"""The lock of a run: only one driver may execute a run, because two drivers would mix files and
rows.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TextIO

from metrics.common.errors import TryLaterError
from metrics.reporting.files import NOT_OFFERED, require_place, write_atomic

FILE = ".driver"
"""Name of the lock file in the run's folder. The text in the file is the name of the lock's holder.
The system unlocks the file when the holder's process ends.
"""

QUERY_S = 0.2
"""Longest time for which a query with `is_locked` may keep the lock [s]."""


@contextmanager
def run_lock(folder: Path, holder: str) -> Iterator[bool]:
    """Lock the run in a folder while the block lasts.

    The cluster's lock excludes a second driver on every machine. The run's lock needs only the
    folder of the run, and excludes a second driver on each machine that shares this folder. The
    run's lock is effective even before the cluster is open, and even with --no-lock.

    Args:
        folder: the folder of the run.
        holder: the name of this driver, for the message of a second driver.

    Yields:
        True if the run is locked; False if the file system of the folder has no locks.

    Raises:
        TryLaterError: another process has the lock.
        ConfigError: the folder is not writable.
    """
    path = folder / FILE
    require_place("--out", path)
    folder.mkdir(parents=True, exist_ok=True)
    file, text = _locked(path), f"{holder}, process {os.getpid()}\n"
    if file is None:  # without locks, the file at least shows that a run is active
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

    The lock is unknown if the file system has no locks, or if this process may not read the lock
    file. The result is then True if a lock file exists, because the run may be active.
    """
    try:
        with (folder / FILE).open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _opened(path: Path) -> TextIO:
    """Open the lock file for reading and writing, without appending or truncating."""
    return os.fdopen(
        os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+", encoding="utf-8"
    )


def _locked(path: Path) -> TextIO | None:
    """Lock and empty the lock file of a run; return None if the file system has no locks."""
    ends_s = time.monotonic() + QUERY_S
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
            if time.monotonic() < ends_s:
                time.sleep(QUERY_S / 10)
                continue
            raise TryLaterError(
                f"{holder} is running in {path.parent}; expected one driver for each run; wait for "
                "its end, or stop it"
            ) from None
        if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
            file.truncate(0)
            return file
        file.close()  # the holder ended and removed the file in the meantime
