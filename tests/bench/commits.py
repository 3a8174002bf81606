"""The engine of an older commit, whose code the benchmark runs beside that of today."""

from __future__ import annotations

import io
import os
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from tests.bench.meter import BenchError
from tests.support.commands import ROOT

_FOLDERS = ("jobs", "metrics", "search", "conf", "tests/support")
"""The packages and the plans of trials; without `tests/bench`, which is that of today."""


def checkout(commit: str, repository: Path = ROOT) -> Path:
    """The folder with the code of a commit, which is made once.

    Args:
        commit: any name that git resolves to one.

    Raises:
        BenchError: the repository has no such commit.
    """
    name = _git(repository, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    parent = repository / ".cache" / "commits"
    folder = parent / name.decode().strip()
    if folder.is_dir():
        return folder
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent) as made:
        tree = Path(made) / "tree"
        packed = _git(repository, "archive", "--format=zip", folder.name, "--", *_FOLDERS)
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            archive.extractall(tree)
        tree.replace(folder)
    return folder


def with_code_of(folder: Path) -> dict[str, Any]:
    """Options of `Popen` for a Python process that imports the code of `folder` before today's."""
    path = os.pathsep.join(map(str, (folder, ROOT)))
    return {"env": os.environ | {"PYTHONPATH": path}, "cwd": folder}


def _git(repository: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=repository, check=False, capture_output=True)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or "the repository has no such commit"
        raise BenchError(f"git {' '.join(arguments)}: {said}")
    return done.stdout
