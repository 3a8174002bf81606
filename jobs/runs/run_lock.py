"""One driver for each run: two with one run id would write into each other's folder and tables."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from metrics.common.errors import TryLaterError
from metrics.reporting.files import require_place

FILE = ".driver"
"""In the run's folder while it goes on: who drives it. The system frees it however that ends."""

_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}


@contextmanager
def run_lock(folder: Path, told: str) -> Iterator[bool]:
    """Be the only process that drives the run of a folder.

    The cluster's lock keeps a second one away from every machine; this one says it before the
    cluster is asked, and without that lock, for all machines that see the folder.

    Args:
        told: who drives the run, for a second one.

    Returns:
        False where the file system of the folder has no locks.

    Raises:
        TryLaterError: another process drives it.
        ConfigError: nothing can be written there.
    """
    path = folder / FILE
    require_place("--out", path)
    folder.mkdir(parents=True, exist_ok=True)
    file = _locked(path)
    if file is None:
        yield False
        return
    with file:
        file.truncate(0)
        file.write(f"{told}, process {os.getpid()}\n")
        file.flush()
        try:
            yield True
        finally:
            path.unlink(missing_ok=True)


def is_locked(folder: Path) -> bool:
    """Whether a process drives the run of a folder, as far as this machine can tell.

    Where the folder's disk has no locks nobody can tell, and a run may well go on.
    """
    path = folder / FILE
    if not path.exists():
        return False
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _locked(path: Path) -> TextIO | None:
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            if error.errno in _NO_LOCKS:
                return None
            if not isinstance(error, BlockingIOError):
                raise
            raise TryLaterError(
                f"{holder} goes on in {path.parent}; expected one driver for each run; wait for "
                "its end, or stop it"
            ) from None
        if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
            return file
        file.close()  # its holder ended and removed it in the meantime
