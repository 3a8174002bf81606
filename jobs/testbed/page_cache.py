"""Dropping log segments from the page cache, so that reads come from the disk."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from metrics.common.errors import ConfigError


def forget(folders: Iterable[Path]) -> int:
    """Drop the pages of all log segments in these folders from the page cache.

    Dirty pages are written first, as only clean pages can be dropped. Pages that a broker has
    mapped stay; they belong to its indexes, which hold no records.

    Returns:
        Size of the segments [B].

    Raises:
        ConfigError: the system has no posix_fadvise, so later reads may come from memory.
    """
    if not hasattr(os, "posix_fadvise"):
        raise ConfigError(
            f"cold is true on {sys.platform}, which cannot drop files from the page cache; "
            "expected Linux; remove cold, or run on Linux"
        )
    forgotten = 0
    for folder in folders:
        for file in folder.rglob("*.log"):
            try:
                descriptor = os.open(file, os.O_RDONLY)
            except FileNotFoundError:  # retention has deleted it
                continue
            try:
                os.fdatasync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                forgotten += os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
    return forgotten
