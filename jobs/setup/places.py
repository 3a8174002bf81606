"""The folders of this machine; standard library only, as set-up needs them first."""

from __future__ import annotations

import os
import sys
from pathlib import Path

CACHE_VARIABLE = "REDLINE_CACHE"
DATABRICKS = "DATABRICKS_RUNTIME_VERSION"
"""Environment variable that is set where Databricks runs the job."""


def checkout_root() -> Path | None:
    """The root of the checkout that contains this code; None in an installed wheel."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "setup.py").is_file() and (root / "Makefile").is_file() else None


def cache_dir() -> Path:
    """The folder of all downloads; it may not exist yet.

    It is `REDLINE_CACHE` where that is set, else `.cache` in the checkout, else in the user's cache
    folder.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    root = checkout_root()
    if root is not None:
        return root / ".cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kafka-redline"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kafka-redline"
