"""A file cache for the script of chart pages, because vl-convert makes this script slowly."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

from metrics.reporting.files import write_atomic

MAKER = "vl-convert-python"
_folders: list[Path] = []

log = logging.getLogger(__name__)


def keep_in(folder: Path) -> None:
    """Set the folder for scripts. Only the first call in a process has an effect."""
    if not _folders:
        _folders.append(folder)


def kept(source: str, make: Callable[[], str]) -> str:
    """The script. The script is read from its file. If the file cannot be used, `make` makes the
    script.

    A file is not used if it is damaged or was made by another release of vl-convert. If the folder
    cannot be read or written, each process makes the script again.

    Args:
        source: text from which vl-convert makes the script.
        make: function that makes the script.
    """
    path = _path(source)
    found = None if path is None else _read(path)
    if found is not None:
        return found
    script = make()
    if path is not None:
        try:
            write_atomic(path, f"{_digest(script)}\n{script}")
        except OSError as error:
            log.debug("the script of chart pages cannot be stored in %s: %s", path, error)
    return script


def _path(source: str) -> Path | None:
    release = _release() if _folders else None
    if release is None:
        return None
    return _folders[0] / f"vega-{release}-{_digest(source)[:12]}.js"


def _release() -> str | None:
    """The installed release of vl-convert; None if its package is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # a slow import

    try:
        return version(MAKER)
    except PackageNotFoundError:
        return None


def _read(path: Path) -> str | None:
    """The script in a file; None if the file is missing or damaged."""
    try:
        digest, _, script = path.read_bytes().decode("utf-8").partition("\n")
    except (OSError, UnicodeDecodeError) as error:
        log.debug("%s cannot be read: %s", path, error)
        return None
    return script if digest == _digest(script) else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
