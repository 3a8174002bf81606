"""Shared class archives of Java (JEP 350): a JVM that starts from one has its classes loaded.

The JVM checks an archive itself, and ignores one of another Java or class path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path


def archive_path(folder: Path, name: str, java: str, class_path: Sequence[str]) -> Path:
    """Where the archive of this program on this Java is kept; it may not exist yet.

    The digest keeps two Javas, or two class paths, from undoing each other's.
    """
    launcher = Path(java).resolve()
    seen = [str(launcher), str(launcher.stat().st_mtime_ns), *class_path]
    digest = hashlib.sha256("\n".join(seen).encode()).hexdigest()[:12]
    return folder / f"{name}-{digest}.jsa"


def write_options(draft: Path) -> list[str]:
    """Options of a JVM that leaves here, as it ends by itself, what it loaded."""
    return [f"-XX:ArchiveClassesAtExit={draft}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def read_options(archive: Path) -> list[str]:
    """Options of a JVM that starts from this archive; none where there is no such file."""
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"] if archive.exists() else []
