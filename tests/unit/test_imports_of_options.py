"""The imports of `redline JOB --help` and of a shell's completions."""

from __future__ import annotations

import json
import subprocess
import sys

from jobs.cli import JOBS
from tests.support.commands import ROOT

HEAVY = ("altair", "kafka", "numpy", "pandas", "pyarrow", "pydantic", "pyspark")
ALLOWED = {"runs": ["pydantic"], "testbed": ["kafka", "pydantic"]}
"""The libraries that jobs may import because their answers take no longer than their options."""
ORDER = sorted(JOBS, key=lambda job: (job in ALLOWED, job))
LOADED = f"""
import json, sys
import click
from jobs.cli import redline
found = {{}}
for job in {ORDER!r}:
    before = set(sys.modules)
    redline.get_command(click.Context(redline), job)
    found[job] = sorted(set(sys.modules) - before & set({HEAVY!r}))
print(json.dumps(found))
"""


def test_the_options_of_a_job_are_there_without_any_large_library() -> None:
    """Each takes tenths of a second, and each press of Tab waits for all of them."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True,
                          cwd=ROOT, check=True)  # fmt: skip
    loaded = json.loads(done.stdout)
    unexpected = {job: set(names) - set(ALLOWED.get(job, ())) for job, names in loaded.items()}
    assert {job: names for job, names in unexpected.items() if names} == {}
