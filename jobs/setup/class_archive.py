"""Shared class archives of Java (JEP 350), from which a JVM starts with its classes loaded.

The JVM validates an archive, and ignores one of another Java or class path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path


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
