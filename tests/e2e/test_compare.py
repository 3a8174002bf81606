"""`redline compare` on two testbeds; each test takes minutes, so all are `long`."""

from __future__ import annotations

import logging
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import (
    RunningCommand,
    await_ends,
    document_in,
    ended,
    finished,
    listening_ports,
)

pytestmark = pytest.mark.long

# One broker per side: on a small machine three brokers need more CPU than available, and the
# comparison would be one of the CPU.
ONE_BROKER = (
    "--set=cluster.testbed.brokers=1",
    "--set=workload.topic.replication_factor=1",
    "--set=cluster.warm_up_max_s=20",
    "--set=workload.trial.measure_s=5",
)
MIX = Path(__file__).parents[1] / "data" / "mixes" / "calibrated.yaml"
COMPARE_S = 900.0
"""A comparison of one size on two busy cores [s]; on two quiet ones it takes 3 minutes."""
ALIKE_TIMES = 10

log = logging.getLogger(__name__)


def compared(folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, compare.json and output."""
    folder.mkdir(exist_ok=True)
    code, text = ended("compare", *ONE_BROKER, *options, folder=folder, deadline_s=COMPARE_S)
    document = document_in(folder, "compare.json")
    assert document["exit_code"] == code, text
    for case in document["cases"]:
        log.warning("%s: %s %s", options, case["conclusion"], case["capacity"]["effect"])
        if case["cause"]:
            log.warning("%s", case["cause"]["text"])
    return code, document, text


def test_one_request_handler_less_is_found_and_named(tmp_path: Path) -> None:
    code, document, text = compared(tmp_path, "--a=num.io.threads=2", "--b=num.io.threads=1")
    assert code == 4, text
    (case,) = document["cases"]
    assert case["conclusion"] == "regression"
    assert case["cause"]["resource"] == "request handlers"
    assert case["cause"]["names"] == ["num.io.threads"]
    assert [each["name"] for each in document["differences"]] == ["broker.config.num.io.threads"]
    assert "likely cause of the slower B: num.io.threads is 1 on B and 2 on A" in text


def test_equal_sides_raise_at_most_one_false_alarm_in_ten(tmp_path: Path) -> None:
    alarms = 0
    for number in range(ALIKE_TIMES):
        same = ("--a=num.io.threads=1", "--b=num.io.threads=1", "--steady-pairs=0")
        code, document, text = compared(tmp_path / f"{number}", *same)
        assert code in (0, 4), text
        effect = document["cases"][0]["capacity"]["effect"]
        alarms += not effect["low"] <= 1.0 <= effect["high"]
    assert alarms <= 1


def test_two_versions_are_compared_honestly(tmp_path: Path) -> None:
    code, document, text = compared(tmp_path, "--a=kafka=3.9.2", "--b=kafka=4.3.1")
    assert code in (0, 4), text
    (case,) = document["cases"]
    effect = case["capacity"]["effect"]
    assert effect["low"] < effect["ratio"] < effect["high"]
    assert 0 < effect["smallest_visible"] < 1
    differing = {each["name"]: (each["a"], each["b"]) for each in document["differences"]}
    assert differing["broker.version"] == ("3.9.2", "4.3.1")
    assert (case["cause"] is not None) == (case["conclusion"] in ("regression", "improvement"))


def test_an_upgrade_from_zookeeper_to_kraft_is_compared(tmp_path: Path) -> None:
    # The same limit is planted on both sides, so that a difference would be one of the comparison.
    planted = (
        "--cluster=calibrated",
        "--workload=calibrated",
        "--set=workload.message_bytes=[1000]",
    )
    upgrade = ("--a=kafka=3.6.2", "--b=kafka=4.1.2", "--pairs=3", "--steady-pairs=1")
    code, document, text = compared(tmp_path, *planted, *upgrade)
    assert code == 0, text
    (case,) = document["cases"]
    assert case["capacity"]["effect"]["count"] == 3
    assert 0.9 < case["capacity"]["effect"]["ratio"] < 1.1
    releases = {side: document[side]["release"] for side in "ab"}
    assert releases == {"a": "Kafka 3.6.2 with ZooKeeper", "b": "Kafka 4.1.2 with KRaft"}
    (file,) = (tmp_path / "out").glob("*/compare.html")
    elections = "elections of a controller are not visible"
    for shown in (text, file.read_text(encoding="utf-8")):
        assert "A is Kafka 3.6.2 with ZooKeeper; B is Kafka 4.1.2 with KRaft" in shown
        assert elections in shown
    assert [elections in " ".join(document[side]["caveats"]) for side in "ab"] == [True, False]
    differing = {each["name"] for each in document["differences"]}
    assert {"broker.version", "broker.config.process.roles"} <= differing
    assert "broker.config.zookeeper.connect" not in differing


def test_a_mix_is_compared_at_the_same_scale(tmp_path: Path) -> None:
    """One broker with a planted limit; without followers, acks=all of a part changes nothing."""
    options = (
        "compare",
        "--cluster=calibrated",
        f"--workload={MIX}",
        "--a=workload.mix.middle.producer.acks=1",
        "--b=workload.mix.middle.producer.acks=all",
        "--pairs=3",
        "--steady-pairs=1",
        "--set=cluster.testbed.brokers=1",
        "--set=workload.trial.measure_s=4",
        "--yes",
    )
    text = finished(*options, folder=tmp_path, deadline_s=COMPARE_S)
    (case,) = document_in(tmp_path, "compare.json")["cases"]
    effect = case["capacity"]["effect"]
    log.warning("a mix: %s, at %s %% a broker", effect, case["load_per_broker"])
    assert 0.8 < effect["ratio"] < 1.25
    assert effect["count"] == 3
    assert case["load_per_broker"] > case["steady_load_per_broker"] > 1
    assert "scale=" in text and "the mix: " in text


def test_an_interruption_leaves_no_process(tmp_path: Path) -> None:
    same = ("--a=num.io.threads=1", "--b=num.io.threads=1")
    with RunningCommand("compare", *ONE_BROKER, *same, folder=tmp_path) as command:
        command.await_line("trial-started trial=2 ", COMPARE_S)
        family = command.family()
        ports = listening_ports(family)
        command.signal(signal.SIGINT)
        assert command.wait(deadline_s=90) == 130, command.text
        assert await_ends(family, deadline_s=90) == []
    assert "Traceback" not in command.text
    for port in ports:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0, f"port {port} is still in use"
    assert document_in(tmp_path, "compare.json")["status"] == "interrupted"
