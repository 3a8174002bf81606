"""Brokers with Kafka's defaults, started by hand: a search ends with a limit or a lower bound."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from jobs.setup.jars import kafka_jars
from jobs.setup.preflight import java_command
from jobs.testbed.jvm import FORMAT_CLASS, SERVER_CLASS
from jobs.testbed.places import free_ports
from tests.support.commands import COMMAND, ROOT, document_in
from tests.support.processes import becomes

log = logging.getLogger(__name__)


def accepts(port: int) -> bool:
    """Whether a node accepts connections."""
    with socket.socket() as own:
        return own.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    """The file of a cluster with Kafka's defaults: a controller and two brokers on loopback."""
    command = [java_command(), "-cp", os.pathsep.join(map(str, kafka_jars()))]
    controller, *ports = free_ports(5)
    brokers, jmx = ports[:2], ports[2:]
    cluster_id = uuid.uuid4().hex[:22]
    processes: list[subprocess.Popen[bytes]] = []
    nodes = [("controller", 100, controller), ("broker", 1, brokers[0]), ("broker", 2, brokers[1])]
    try:
        for role, node, port in nodes:
            listener = "CONTROLLER" if role == "controller" else "PLAINTEXT"
            file = tmp_path / f"{node}.properties"
            file.write_text(
                f"process.roles={role}\nnode.id={node}\nlog.dirs={tmp_path}/{node}\n"
                f"listeners={listener}://127.0.0.1:{port}\n"
                f"controller.quorum.voters=100@127.0.0.1:{controller}\n"
                "controller.listener.names=CONTROLLER\n"
                "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
                "offsets.topic.replication.factor=2\n"
            )
            made = [*command, FORMAT_CLASS, "format", "-t", cluster_id, "-c", str(file)]
            subprocess.run(made, check=True, capture_output=True)
            options = ["-Xmx1G"]
            if role == "broker":
                options += [
                    f"-Dcom.sun.management.jmxremote.port={jmx[node - 1]}",
                    "-Dcom.sun.management.jmxremote.host=127.0.0.1",
                    "-Djava.rmi.server.hostname=127.0.0.1",
                    "-Dcom.sun.management.jmxremote.authenticate=false",
                    "-Dcom.sun.management.jmxremote.ssl=false",
                ]
            with (tmp_path / f"{node}.log").open("wb") as out:
                start = [command[0], *options, *command[1:], SERVER_CLASS, str(file)]
                processes.append(subprocess.Popen(start, stdout=out, stderr=out))
        for port in (*brokers, *jmx):
            assert becomes(partial(accepts, port), 60.0)
        made_file = tmp_path / "untuned.yaml"
        made_file.write_text(
            "description: two brokers with Kafka's defaults\n"
            f"bootstrap_servers: [127.0.0.1:{brokers[0]}, 127.0.0.1:{brokers[1]}]\n"
            f"jmx:\n  endpoints: {{1: 127.0.0.1:{jmx[0]}, 2: 127.0.0.1:{jmx[1]}}}\n"
        )
        yield made_file
    finally:
        for process in reversed(processes):  # a broker leaves in order while its controller runs
            process.terminate()
            try:
                process.wait(30.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30.0)


def seconds_in(pattern: str, output: str) -> float:
    """The time, such as `3 min 56 s`, that is the group of a pattern [s]."""
    found = re.search(pattern, output)
    assert found is not None, output
    parts = re.findall(r"(\d+) (h|min|s)\b", found[1])
    return float(sum(int(count) * {"h": 3600, "min": 60, "s": 1}[unit] for count, unit in parts))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_search_of_untuned_brokers_has_an_answer(cluster: Path, tmp_path: Path) -> None:
    ended = subprocess.run(
        [
            *COMMAND, "find-limit", "--cluster", str(cluster), "--workload", "1kB", "--yes",
            "--out", str(tmp_path / "out"), "--set", "workload.topic.replication_factor=1",
            "--set", "goal.search.accept_lower_bound=true",
        ],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
    (found,) = document_in(tmp_path)["boundaries"]
    assert found["answer_kind"] in ("limit", "lower bound")
    assert found["answer_mb_per_s"] > 0
    log.warning("%s", ended.stdout)
    forecast_s = seconds_in(r'forecast="[^"]*?, ([^,"]*) with', ended.stdout)
    took_s = seconds_in(r'run-finished .*took="([^"]*)"', ended.stdout)
    log.warning("took %.0f s of a forecast of %.0f s", took_s, forecast_s)
    assert took_s <= 1.5 * forecast_s
