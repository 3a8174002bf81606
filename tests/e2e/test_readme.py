"""The commands of the README, as they stand, on brokers of the testbed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from tests.support.commands import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.long]

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
OWN = TEXT.split("## Find your cluster's limit")[1].split("```sh\n")[1].split("```")[0].splitlines()


def shell(line: str, folder: Path, answers: str = "") -> str:
    """Run a line of the README in a folder with a `.venv`; returns what it prints."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environ, input=answers, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1_500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{line}\n{done.stdout}"
    return done.stdout


# Beyond the limit a testbed of 8 GB would be full before the search ends.
ROOMY = {"disk_limit_bytes": 40_000_000_000}


@pytest.mark.timeout(1_800)
def test_the_commands_for_an_own_cluster_lead_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    with start(brokers=3, root=tmp_path / "bed", name="own", overrides=ROOMY) as testbed:
        run_all(testbed, tmp_path)
    (summary,) = (tmp_path / "out").glob("*/summary.json")
    boundaries = json.loads(summary.read_text(encoding="utf-8"))["boundaries"]
    assert len(boundaries) == 3 and all(each["np_sustained"] for each in boundaries)
    assert summary.with_name("report.html").exists()


def run_all(testbed: Testbed, folder: Path) -> None:
    """Run the README's commands for a cluster, with the JMX ports of these brokers."""
    init, doctor, plan, search = OWN
    shell(init, folder, f"{','.join(testbed.bootstrap_servers)}\nPLAINTEXT\njmx\n")
    file, endpoints = folder / "my-cluster.yaml", json.dumps(testbed.jmx_endpoints)
    text = file.read_text(encoding="utf-8")
    assert "port: 9999" in text  # each of these brokers has a port of its own
    file.write_text(text.replace("port: 9999", f"endpoints: {endpoints}"), encoding="utf-8")
    shell(doctor, folder)
    assert re.search(r"duration|about \d", shell(plan, folder))
    shell(search, folder)
