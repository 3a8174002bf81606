"""The folders of this machine; standard library only, as set-up needs them first.

The environment of child processes: that of this process, without secrets.

Shared class archives of Java (JEP 350), from which a JVM starts with its classes loaded.

The JVM validates an archive, and ignores one of another Java or class path.

The check for packages that shadow this project's packages in Python's import path.

The project's packages are flat (`jobs`, `search`, `metrics`, `conf`), so that a checkout works as
it is; in a shared environment another package may have one of these names. Standard library only.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
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


_SECRET: set[str] = set()


def withhold(variable: str) -> None:
    """Withhold this environment variable from all later child processes."""
    _SECRET.add(variable)


def child_environment() -> dict[str, str]:
    """The environment for a child process."""
    return {name: value for name, value in os.environ.items() if name not in _SECRET}


@contextmanager
def secrets_withheld() -> Iterator[None]:
    """Remove the withheld variables while a library starts a process with the environment."""
    kept = {name: os.environ.pop(name) for name in _SECRET if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def archive_path(folder: Path, name: str, java: str, class_path: Sequence[str]) -> Path:
    """The path of the archive of this program on this Java; it may not exist yet.

    A digest keeps the archives of different Javas and class paths apart.
    """
    launcher = Path(java).resolve()
    seen = [str(launcher), str(launcher.stat().st_mtime_ns), *class_path]
    digest = hashlib.sha256("\n".join(seen).encode()).hexdigest()[:12]
    return folder / f"{name}-{digest}.jsa"


def write_options(draft: Path) -> list[str]:
    """Options of a JVM that writes its loaded classes to this file at its exit."""
    return [f"-XX:ArchiveClassesAtExit={draft}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def read_options(archive: Path) -> list[str]:
    """Options of a JVM that starts from this archive; empty where the file is missing."""
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"] if archive.exists() else []


NAMES = ("conf", "metrics", "search")
"""The packages besides `jobs`, which contains this module."""


def shadowing_problem(ours: Path, names: Iterable[str] = NAMES) -> str:
    """A message about packages that shadow this project's; empty without any.

    Args:
        ours: folder or archive of this project's packages.
    """
    found = {name: importlib.util.find_spec(name) for name in names}
    others = {name: place for name, spec in found.items() if (place := _elsewhere(spec, ours))}
    if not others:
        return ""
    shadowing = " and ".join(f"{name} ({place})" for name, place in others.items())
    return (
        f"Python imports other packages instead of kafka-redline's: {shadowing}; expected the "
        f"packages in {ours}; run from another folder, remove the other package from PYTHONPATH, "
        "or install kafka-redline in an environment of its own"
    )


def _elsewhere(spec: importlib.machinery.ModuleSpec | None, ours: Path) -> str:
    """The path of a package outside of `ours`; empty if it is inside, or does not exist."""
    if spec is None:
        return ""
    places = list(spec.submodule_search_locations or [spec.origin or ""])
    if any(Path(place).parent == ours for place in places):
        return ""
    return places[0]
