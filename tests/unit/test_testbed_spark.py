"""The Spark cluster of a testbed: the command lines of its processes, and their owner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.config import load_cluster
from jobs.testbed import commands
from jobs.testbed.cleanup import end_processes, inheriting_processes, node_processes
from jobs.testbed.launcher import cluster_text, make_spec, submit_line
from jobs.testbed.model import State, Status
from jobs.testbed.nodes import Nodes
from jobs.testbed.profile import load_profile
from jobs.testbed.spark import (
    TESTBED_VARIABLE,
    spark_command,
    spark_home,
    submit_properties,
    workers_problem,
)
from metrics.common.errors import ConfigError
from tests.support.processes import PATIENCE_S, becomes
from tests.support.served_http import Answer, Asked, served
from tests.support.testbed_spec import SPEC

WITH_SPARK = replace(SPEC, spark_workers=2, spark_home="/spark")


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    laid_out = Nodes(WITH_SPARK, tmp_path)
    laid_out.lay_out(lambda count: list(range(22_000, 22_000 + count)))
    return laid_out


def test_master_workers_and_jobs_share_a_secret_that_no_command_line_has(
    nodes: Nodes, tmp_path: Path
) -> None:
    file = submit_properties(tmp_path)
    assert file.stat().st_mode & 0o777 == 0o600
    settings = dict(line.split() for line in file.read_text().splitlines() if line[:1] not in "#")
    assert settings["spark.authenticate"] == "true"
    assert settings["spark.network.crypto.enabled"] == "true"
    secret = settings["spark.authenticate.secret"]
    assert len(secret) == 64
    state = State(WITH_SPARK, Status.READY, 1.0, nodes=nodes.nodes, spark=nodes.spark)
    commands = [" ".join(spark_command(WITH_SPARK, each, nodes.spark[0])) for each in nodes.spark]
    for line in [*commands, submit_line(state, tmp_path / "cluster.yaml")]:
        assert f"--properties-file {file}" in line
        assert secret not in line
    nodes.lay_out(lambda count: list(range(22_000, 22_000 + count)))
    assert secret not in file.read_text(), "each start has its own"


def test_a_spark_cluster_is_ready_when_every_worker_is_alive(nodes: Nodes) -> None:
    workers = {node.port: "ALIVE" for node in nodes.spark[1:]}

    def page(_asked: Asked) -> Answer:
        listed = [{"port": port, "state": state} for port, state in workers.items()]
        return Answer(json.dumps({"workers": listed}))

    with served(page) as web_port:
        spark = (replace(nodes.spark[0], web_port=web_port), *nodes.spark[1:])
        assert workers_problem(spark, PATIENCE_S) is None
        workers[nodes.spark[2].port] = "DEAD"
        words = "Spark worker 2 did not register at the Spark master"
        assert workers_problem(spark, PATIENCE_S) == words
    assert "the Spark master does not answer" in str(workers_problem(spark, PATIENCE_S))


def test_processes_that_spark_started_are_found_by_their_environment_and_ended() -> None:
    started = []
    for testbed_id in (SPEC.id, "other-00000000"):
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        started.append(subprocess.Popen(command, env={**os.environ, TESTBED_VARIABLE: testbed_id}))
    own, other = started
    try:
        assert becomes(lambda: [p.pid for p in inheriting_processes(SPEC.id)] == [own.pid])
        state = State(SPEC, Status.READY, created_s=time.time() - 60)
        assert [p.pid for p in node_processes(state)] == [own.pid]
        end_processes(inheriting_processes(SPEC.id))
        own.wait(PATIENCE_S)
        assert inheriting_processes(SPEC.id) == []
        assert other.poll() is None
    finally:
        for each in started:
            each.kill()
            each.wait()


def test_the_cluster_file_can_be_loaded_by_a_run(tmp_path: Path, nodes: Nodes) -> None:
    state = State(WITH_SPARK, Status.READY, 1.0, nodes=nodes.nodes, spark=nodes.spark)
    path = tmp_path / "cluster.yaml"
    path.write_text(cluster_text(tmp_path, state))
    cluster = load_cluster(str(path))
    assert cluster.bootstrap_servers == state.bootstrap_servers
    assert cluster.jmx is not None and cluster.jmx.endpoints is not None
    assert set(cluster.jmx.endpoints) == {100, 1, 2}
    line = submit_line(state, path)
    assert line.startswith("spark-submit --master spark://127.0.0.1:22006 ")
    assert f"--cluster {path} --yes" in line
    assert list((Path(spark_home()) / "jars").glob("spark-core_*.jar"))
    with pytest.raises(ConfigError, match="is 9; expected 0 to 8"):
        make_spec(load_profile("disk-bound"), "many", [], spark_workers=9)
    done = CliRunner().invoke(commands.testbed, ["up", "--spark-workers", "9"])
    assert done.exit_code == 2 and "--spark-workers" in done.output
