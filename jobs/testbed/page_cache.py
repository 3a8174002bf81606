"""Reading from the disk and not from memory: the kernel forgets what it caches of log files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from metrics.common.errors import ConfigError


def forget(folders: Iterable[Path]) -> int:
    """Have the kernel drop the pages of all log segments in these folders.

    Pages that were not on the disk yet are written first, as only clean ones can be dropped.
    Pages that a broker has mapped stay: those of its indexes, which hold no records.

    Returns:
        Size of the segments [B].

    Raises:
        ConfigError: the system takes no such advice, so what is read next may be in memory.
    """
    if not hasattr(os, "posix_fadvise"):
        raise ConfigError(
            f"cold is true on {sys.platform}, which takes no advice to drop what it caches; "
            "expected Linux; remove cold, or run on another system"
        )
    forgotten = 0
    for folder in folders:
        for file in folder.rglob("*.log"):
            try:
                descriptor = os.open(file, os.O_RDONLY)
            except FileNotFoundError:  # retention was faster
                continue
            try:
                os.fdatasync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                forgotten += os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
    return forgotten
