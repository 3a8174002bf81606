"""A host that allows too few open files for the sockets of a load says so before it opens any."""

from __future__ import annotations

import subprocess
import sys

from tests.support.commands import ROOT

SCRIPT = """
import resource, sys
from jobs.engine.network.connections import ensure_descriptors
soft, hard, sockets = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
ensure_descriptors(sockets)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def run_limited(soft: int, hard: int, sockets: int) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, f"{soft}", f"{hard}", f"{sockets}"],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_the_limit_is_raised_as_far_as_the_host_allows() -> None:
    code, shown = run_limited(300, 2_000, 1_000)
    assert code == 0, shown
    assert int(shown) > 1_000
    assert run_limited(1_500, 2_000, 100) == (0, "1500\n"), "and never lowered"


def test_a_host_that_allows_too_few_is_named_with_the_remedy() -> None:
    code, shown = run_limited(300, 1_024, 1_500)
    assert code == 1
    assert "this host allows 1024 open files; expected at least 1756 for 1500 connections" in shown
    assert "ulimit -n" in shown
