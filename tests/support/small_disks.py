"""File systems so small that they fill up, where this user may mount any."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size_kb: int) -> Iterator[Path]:
    """A file system of its own in a new folder; skips the test where none may be mounted."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_kb}k", "redline-tests", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if done.returncode != 0:
        pytest.skip(f"no file system may be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def resize(folder: Path, size_kb: int) -> None:
    """Give a small disk another size."""
    subprocess.run(["mount", "-o", f"remount,size={size_kb}k", str(folder)], check=True)
