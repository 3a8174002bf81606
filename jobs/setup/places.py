"""Where things are kept on this machine. Standard library only: set-up runs it first."""

from __future__ import annotations

import os
import sys
from pathlib import Path

CACHE_VARIABLE = "REDLINE_CACHE"


def checkout_root() -> Path | None:
    """The root of the checkout that this code runs from; None from an installed wheel."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "setup.py").is_file() and (root / "Makefile").is_file() else None


def cache_dir() -> Path:
    """The folder of everything that is downloaded once; it may not exist yet.

    `REDLINE_CACHE` where set, else `.cache` in the checkout, else the user's cache folder.
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
