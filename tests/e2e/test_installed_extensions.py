"""Packages of others, installed by pip beside kafka-redline, in an environment of their own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.added_packages import PACKAGES
from tests.support.served_jolokia import served_jolokia
from tests.support.wheel import python_without_project

pytestmark = pytest.mark.long

EXPERIMENT = """
asks: time-to-rest
load: 400
workload: 1kB
axes:
  workload.producer.acks: ["1", all]
"""
CLUSTER = """
bootstrap_servers: ["127.0.0.1:9092"]
metrics:
  extension: {{source: jolokia, options: {{port: {port}}}}}
"""
READ = """
import json, sys
from jobs.config.loading import load_cluster
from jobs.config.metrics_registry import SourceTarget
source = load_cluster(sys.argv[1]).broker_source.open(
    SourceTarget({1: "127.0.0.1"}, "4.1", None, None)
)
(sample,) = source.sample_all()
print(json.dumps([source.name, source.nodes[1].version, sample.values, sample.error]))
source.close()
"""


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the wheel of this project and both packages, which pip installed."""
    folder = tmp_path_factory.mktemp("installed")
    found = python_without_project(folder / "environment")
    projects = [str(PACKAGES / name) for name in ("jolokia", "rest")]
    target = next((folder / "environment").glob("lib/python*/site-packages"))
    pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    run(found, folder, *pip, "--target", str(target), str(wheel), *projects)
    return found


def run(python: Path, folder: Path, *arguments: str, code: int = 0) -> str:
    """The output of a command in the environment, with nothing of this checkout on its path."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(python), *arguments], cwd=folder, env=environ, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_sweep_asks_for_the_measurement_of_an_installed_package(
    python: Path, tmp_path: Path
) -> None:
    (tmp_path / "rest.yaml").write_text(EXPERIMENT, encoding="utf-8")
    shown = run(python, tmp_path, "-m", "jobs.cli", "sweep", "rest.yaml", "--dry-run")
    assert "2 cases, 2 measurements" in " ".join(shown.split())
    (tmp_path / "typo.yaml").write_text(EXPERIMENT.replace("rest", "rets"), encoding="utf-8")
    refused = run(python, tmp_path, "-m", "jobs.cli", "sweep", "typo.yaml", "--dry-run", code=2)
    assert "time-to-rets" in refused and "(time-to-rest)" in refused
    assert "Traceback" not in refused


def test_a_cluster_is_read_by_the_source_of_an_installed_package(
    python: Path, tmp_path: Path
) -> None:
    with served_jolokia() as agent:
        (tmp_path / "mine.yaml").write_text(CLUSTER.format(port=agent.port), encoding="utf-8")
        read = run(python, tmp_path, "-c", READ, "mine.yaml")
    name, version, values, error = json.loads(read)
    assert (name, version, error) == ("jolokia", "4.1.2", None)
    assert "handler_idle_ns" in values
