"""Jars without a network: cached ones are used, and a sentence names missing ones."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def dead_url() -> Iterator[str]:
    """An address that refuses connections during the test."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/"


def _fetch(url: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "jobs.setup.jars"],
        cwd=ROOT,
        env={**os.environ, "REDLINE_MAVEN_URL": url, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.together
def test_cached_jars_need_no_network(dead_url: str) -> None:
    done = _fetch(dead_url)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.together
def test_a_sentence_names_jars_missing_without_a_network(dead_url: str, tmp_path: Path) -> None:
    done = _fetch(dead_url, REDLINE_CACHE=str(tmp_path))
    (sentence,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert dead_url in sentence
    assert not list(tmp_path.rglob("*.jar"))
