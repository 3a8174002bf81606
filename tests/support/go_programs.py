"""Programs for tests that are Go modules in tests/data, built once where Go is installed."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import ROOT

BUILD_S = 1_800.0
"""Deadline of a build; the largest one takes ten minutes on two cores [s]."""


def built(source: Path) -> Path:
    """The program of a module, built if no build of the same sources exists.

    The test is skipped if Go is not installed, is too old, or cannot fetch the modules.
    """
    name, go = source.name, shutil.which("go")
    if go is None:
        pytest.skip(f"Go is not installed, and {name} is a Go module")
    sources = sorted(each for each in source.iterdir() if each.is_file())
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()
    program = ROOT / ".cache" / name / digest[:16] / name
    if program.exists():
        return program
    # GOTOOLCHAIN keeps an older Go from fetching a newer one.
    environ = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [go, *words],
            check=False,
            cwd=source,
            env=environ,
            capture_output=True,
            text=True,
            timeout=BUILD_S,
        )

    found = re.search(r"go(\d+)\.(\d+)", run("version").stdout)
    wanted = re.search(r"^go (\d+)\.(\d+)", (source / "go.mod").read_text(), re.MULTILINE)
    assert found is not None and wanted is not None
    if tuple(map(int, found.groups())) < tuple(map(int, wanted.groups())):
        pytest.skip(f"{found[0]} is installed, and {name} needs {wanted[0]} or later")
    fetched = run("mod", "download")
    if fetched.returncode:
        pytest.skip(f"Go cannot fetch the modules of {name}: {fetched.stderr.strip()[-300:]}")
    program.parent.mkdir(parents=True, exist_ok=True)
    partial = program.with_name(f"{name}-{os.getpid()}")
    done = run("build", "-trimpath", "-ldflags=-s -w", "-o", str(partial), ".")
    assert done.returncode == 0, done.stderr
    partial.replace(program)
    return program
