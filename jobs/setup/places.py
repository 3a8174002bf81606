"""The folders of this machine, the environment of child processes, and checks of import paths.

The module uses only the standard library, because set-up imports it first.

Child processes get the environment of this process without secrets.

A JVM starts faster from a shared class archive of its loaded classes (JEP 350). The JVM validates a
class archive, and ignores it if another Java or another class path has produced it.

The project's packages are top-level packages (`jobs`, `search`, `metrics`, `conf`), so that a
checkout works without installation. In a shared environment, another package can have one of these
names and shadow the project's package.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CACHE_VARIABLE = "REDLINE_CACHE"
DATABRICKS = "DATABRICKS_RUNTIME_VERSION"
"""Environment variable that Databricks sets."""


def checkout_root() -> Path | None:
    """The root of the checkout that contains this code; None in an installed wheel."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "setup.py").is_file() and (root / "Makefile").is_file() else None


def cache_dir() -> Path:
    """The folder of all downloads, whether or not the folder exists.

    The environment variable `REDLINE_CACHE` can name the folder. By default the folder is `.cache`
    in the checkout, or the user's cache folder if there is no checkout.
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
    """Remove this variable from the environment of all later child processes."""
    _SECRET.add(variable)


def child_environment() -> dict[str, str]:
    """The environment for a child process, without secrets."""
    return {name: value for name, value in os.environ.items() if name not in _SECRET}


@contextmanager
def secrets_withheld() -> Iterator[None]:
    """Remove the secret variables from the environment of this process while the block lasts,
    because a library starts a child process with this environment.
    """
    kept = {name: os.environ.pop(name) for name in _SECRET if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def archive_path(folder: Path, name: str, java: str, class_path: Sequence[str]) -> Path:
    """The path of a program's class archive for this Java, whether or not the archive exists.

    A digest in the name distinguishes Java versions and class paths.
    """
    launcher = Path(java).resolve()
    seen = [str(launcher), str(launcher.stat().st_mtime_ns), *class_path]
    digest = hashlib.sha256("\n".join(seen).encode()).hexdigest()[:12]
    return folder / f"{name}-{digest}.jsa"


def write_options(draft: Path) -> list[str]:
    """Options of a JVM that writes its loaded classes to `draft` at its exit."""
    return [f"-XX:ArchiveClassesAtExit={draft}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def read_options(archive: Path) -> list[str]:
    """Options of a JVM that starts from a shared class archive; empty if the archive is missing."""
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"] if archive.exists() else []


NAMES = ("conf", "metrics", "search")
"""The project's packages except `jobs`, which contains this module."""


def shadowing_problem(ours: Path) -> str:
    """A message about packages that shadow the project's packages; empty if there are none.

    Args:
        ours: folder or archive with the project's packages.
    """
    found = {name: importlib.util.find_spec(name) for name in NAMES}
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
    """The path of a package if Python imports it from outside of `ours`; empty if the package is
    inside or does not exist.
    """
    if spec is None:
        return ""
    places = list(spec.submodule_search_locations or [spec.origin or ""])
    if any(Path(place).parent == ours for place in places):
        return ""
    return places[0]
