"""Small file systems that tests fill up; they need the permission to mount."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size_kb: int) -> Iterator[Path]:
    """A small file system in a new folder; skips the test without the permission to mount."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_kb}k", "redline-tests", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("the program mount is missing")
    if done.returncode != 0:
        pytest.skip(f"a file system cannot be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def resize(folder: Path, size_kb: int) -> None:
    """Change the size of a small disk."""
    subprocess.run(["mount", "-o", f"remount,size={size_kb}k", str(folder)], check=True)
