"""The facts of an executor, collected in this process and in one without the project's code."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from jobs.checks import executor_facts
from jobs.checks.survey import CODE, ExecutorFacts, shipped_as_source
from jobs.trials.control_server import ControlServer, own_certificate
from tests.support.processes import PATIENCE_S

ORDER = {
    "packages": {"kafka-python": "kafka", "nonesuch": "nonesuch"},
    "files": [__file__, "/no/such/file"],
    "code": ["search"],
    "engine": ["jobs.engine.stage"],
    "brokers": {},
    "clock": {"host": "127.0.0.1", "port": 1, "token": "t", "certificate": ""},
    "timeout_s": 1.0,
}


@pytest.fixture
def control() -> Iterator[ControlServer]:
    with ControlServer("127.0.0.1", "127.0.0.1") as server:
        yield server


def test_facts_name_missing_packages_and_the_first_task_of_a_host_looks_at_brokers() -> None:
    facts = executor_facts.facts(ORDER, 0, "127.0.0.1:7", True)
    assert facts["packages"]["kafka-python"].startswith("3.")
    assert "No module named 'nonesuch'" in facts["package_errors"]["nonesuch"]
    assert facts["unreadable"] == ["/no/such/file"]
    assert facts["channel_trouble"].endswith("127.0.0.1:1: connection refused")
    assert facts["trouble"] == ""

    assert "unreachable" in executor_facts.facts(ORDER, 0, "h:1", True)
    assert "unreachable" not in executor_facts.facts(ORDER, 1, "h:1", False)


def test_brokers_are_probed_in_parallel() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        brokers = {"1": ["127.0.0.1", port], "2": ["127.0.0.1", 1], "3": ["no.such.invalid", 9092]}
        found = executor_facts.probe_brokers(brokers, 1.0)
    assert found["1"][0] == ""
    assert found["2"] == ("connection refused", None)
    assert "resolve" in found["3"][0]
    if sys.platform == "linux":
        assert found["1"][1] is not None and 0 < found["1"][1] < 1_000


def test_the_kernels_limits_are_read_as_far_as_they_are_shown(tmp_path: Path) -> None:
    assert executor_facts.kernel_buffers(tmp_path) == {}
    (tmp_path / "ipv4").mkdir()
    (tmp_path / "ipv4/tcp_rmem").write_text("4096\t131072\t6291456\n")
    assert executor_facts.kernel_buffers(tmp_path) == {"tcp_rmem": [4_096, 131_072, 6_291_456]}


def test_the_clock_is_compared_over_the_control_channel(control: ControlServer) -> None:
    with control.channel(1) as channel:
        place = asdict(channel.address)
        offset = executor_facts.clock_offset(place, 0, PATIENCE_S)
        assert channel.failure is None
    assert abs(offset["offset_s"]) <= offset["offset_error_s"] + 0.005
    assert offset["offset_error_s"] > 0.0


def test_a_clock_that_is_ahead_shows_as_ahead_and_heartbeats_are_no_answers() -> None:
    tls, certificate = own_certificate()
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        driver = pool.submit(answer_late_clocks, listening, tls)
        port = listening.getsockname()[1]
        place = {"host": "127.0.0.1", "port": port, "token": "t", "certificate": certificate}
        offset = executor_facts.clock_offset(place, 0, PATIENCE_S)
        assert driver.result(PATIENCE_S) == executor_facts.CLOCK_ROUNDS
    assert offset["offset_s"] == pytest.approx(100.0, abs=offset["offset_error_s"] + 0.005)


def answer_late_clocks(listening: socket.socket, tls: ssl.SSLContext) -> int:
    """A driver whose clock is 100 s behind, and which sends a heartbeat before each answer."""
    plain, _ = listening.accept()
    sock = tls.wrap_socket(plain, server_side=True)
    rounds = 0
    with sock, sock.makefile("rwb") as channel:
        assert json.loads(channel.readline()) == {"token": "t", "task": 0}
        while b"clock" in channel.readline():
            channel.write(b"\n" + json.dumps({"clock_s": time.time() - 100.0}).encode() + b"\n")
            channel.flush()
            rounds += 1
    return rounds


def test_a_driver_out_of_reach_is_named_and_a_wrong_token_is_refused(
    control: ControlServer,
) -> None:
    with socket.socket() as held:  # bound and not listening: connections are refused
        held.bind(("127.0.0.1", 0))
        place = {"host": "127.0.0.1", "port": held.getsockname()[1], "token": "t"}
        with pytest.raises(ConnectionError, match=r"^127\.0\.0\.1:\d+: connection refused$"):
            executor_facts.clock_offset(place, 0, PATIENCE_S)
    place = {"host": "driver.invalid", "port": 7080, "token": "t"}
    with pytest.raises(ConnectionError, match=r"driver\.invalid:7080: the host name does not"):
        executor_facts.clock_offset(place, 0, PATIENCE_S)

    with control.channel(1) as channel:
        place = asdict(channel.address) | {"token": "wrong"}
        with pytest.raises(OSError, match=r"closed the connection|reset|Broken"):
            executor_facts.clock_offset(place, 0, PATIENCE_S)


def test_other_code_has_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "digested"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("A = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    first = executor_facts.digest(["digested"])
    assert first == executor_facts.digest(["digested"])
    (package / "one.py").write_text("A = 2\n")
    assert executor_facts.digest(["digested"]) != first
    assert len(executor_facts.digest(CODE)) == 12


def test_the_survey_runs_without_the_projects_code(tmp_path: Path) -> None:
    """The functions are pickled as code, as for Spark, for an interpreter in another folder."""
    pickler: Any = cloudpickle  # the package has no types
    with shipped_as_source():
        (tmp_path / "facts.pickle").write_bytes(pickler.dumps(executor_facts.facts))
    code = (
        "import json, pickle, sys\n"
        # A set-up may have installed the project's code for this interpreter.
        "class Bare:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('conf', 'jobs', 'metrics', 'search'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Bare())\n"
        "facts = pickle.load(open('facts.pickle', 'rb'))\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'jobs']\n"
        "print(json.dumps(facts(json.loads(sys.argv[1]), 0, 'h:1', True)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, json.dumps(ORDER)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = ExecutorFacts.parse(done.stdout)
    assert facts.trouble == "ModuleNotFoundError: No module named 'jobs'"
    assert facts.code is None
    assert facts.packages["kafka-python"] is not None
