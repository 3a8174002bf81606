"""`redline learn` over real connections, from brokers of another make than Kafka."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from jobs.cluster.connect import connect
from jobs.config.loading import load_workload
from tests.support.commands import RunningCommand, finished
from tests.support.kfake import Kfake
from tests.support.processes import beside

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

WORD = b"Mustermann-4711"
TOPIC = "orders"
GROUP = "billing"
VALUE_BYTES = 400
INTERVAL_S = 0.02
LINGER_S = 0.1
PRODUCERS = 2
SENDING_S = 8.0
COMMAND_S = 90.0


@contextmanager
def production(servers: list[str]) -> Iterator[list[int]]:
    """Producers at an even rate and a group that reads, within this context.

    Yields:
        The records of each producer so far.
    """
    over, sent = threading.Event(), [0] * PRODUCERS
    value = WORD + bytes(VALUE_BYTES - len(WORD))

    def send(number: int) -> None:
        producer = KafkaProducer(
            bootstrap_servers=servers, linger_ms=int(LINGER_S * 1e3), compression_type="lz4",
            enable_idempotence=True, acks="all",
        )  # fmt: skip
        began_s = time.monotonic()
        while not over.wait(max(0.0, began_s + sent[number] * INTERVAL_S - time.monotonic())):
            producer.send(TOPIC, value, key=b"key-%03d" % (sent[number] % 20))
            sent[number] += 1
        producer.close()

    def read() -> None:
        consumer = KafkaConsumer(
            TOPIC, bootstrap_servers=servers, group_id=GROUP, auto_commit_interval_ms=500,
            auto_offset_reset="earliest",
        )  # fmt: skip
        while not over.is_set():
            consumer.poll(timeout_ms=100)
        consumer.close()

    with ExitStack() as stack:
        stack.enter_context(beside(read, over))
        for number in range(PRODUCERS):
            stack.enter_context(beside(partial(send, number), over))
        yield sent


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[str]]:
    """The addresses of brokers with a topic, and their cluster file, `prod.yaml`."""
    with Kfake(3) as running:
        servers = running.bootstrap_servers.split(",")
        (tmp_path / "prod.yaml").write_text(
            f"bootstrap_servers: [{running.bootstrap_servers}]\nmetrics: {{client_only: true}}\n"
        )
        with connect(servers) as admin:
            placed = {number: [number, (number + 1) % 3] for number in range(3)}
            admin.create_topic(TOPIC, placed, {})
        yield servers


def groups_of(servers: list[str]) -> set[str]:
    with connect(servers) as admin:
        return {each["group_id"] for each in admin.client.list_groups()}


def test_a_topic_is_learnt_over_real_connections(brokers: list[str], tmp_path: Path) -> None:
    command = ("learn", "--cluster=prod.yaml", "--topics=ord.*", "--decode", "--scale-1=now")
    with production(brokers):
        time.sleep(SENDING_S)
        shown = finished(*command, "--out=mine.yaml", folder=tmp_path, deadline_s=COMMAND_S)
        assert groups_of(brokers) == {GROUP}, "it joins no group"
    assert "joins no group, commits nothing" in shown
    assert "written: mine.learned.json" in shown
    evidence = json.loads((tmp_path / "mine.learned.json").read_text(encoding="utf-8"))
    ((topic,),) = [part["topics"] for part in evidence["parts"]]
    assert topic["messages_per_s"] == pytest.approx(PRODUCERS / INTERVAL_S, rel=0.1)
    assert (topic["producer_ids"], topic["codecs"][0]["codec"]) == (PRODUCERS, "lz4")
    decoded = topic["decoded"]
    assert (decoded["value_bytes"], decoded["key_bytes"], decoded["keys_seen"]) == (
        VALUE_BYTES, 7, 20,
    )  # fmt: skip
    (group,) = topic["groups"]
    assert (group["name"], group["members"], topic["fan_out"]) == (GROUP, 1, 1)
    assert load_workload(str(tmp_path / "mine.yaml")).producer.enable_idempotence
    for file in tmp_path.iterdir():
        assert WORD not in file.read_bytes(), file
    assert WORD.decode() not in shown


def test_ctrl_c_ends_the_reading(brokers: list[str], tmp_path: Path) -> None:
    command = ("learn", "--cluster=prod.yaml", "--topics=ord.*", "--read-mb-per-s=0.005")
    with production(brokers):
        time.sleep(SENDING_S)
        with RunningCommand(*command, "--out=mine.yaml", folder=tmp_path) as running:
            running.await_line("phase doing", COMMAND_S)
            time.sleep(4.0)  # decides only which of the two ends below is seen
            running.signal(signal.SIGINT)
            assert running.wait(COMMAND_S) == 130, running.text
    if "interrupted; the data that was read before the interrupt is written" in running.text:
        evidence = json.loads((tmp_path / "mine.learned.json").read_text(encoding="utf-8"))
        assert evidence["read"]["interrupted"] is True
    else:
        assert not (tmp_path / "mine.yaml").exists()
