"""Properties of Kafka's clients, by Kafka's names and by the keys here."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.config.kafka_names import SECTIONS, own_name
from jobs.config.loading import describe, load_workload
from metrics.common.errors import ConfigError
from metrics.traffic.consumers import ConsumerOptions
from tests.support.commands import ROOT

NAMES = {
    "linger.ms": ("linger_ms", 7),
    "batch.size": ("batch_size", 4_096),
    "compression.type": ("compression", "lz4"),
    "max.in.flight.requests.per.connection": ("max_in_flight", 3),
    "max_in_flight_requests_per_connection": ("max_in_flight", 3),
    "enable.idempotence": ("enable_idempotence", False),
    "delivery.timeout.ms": ("delivery_timeout_ms", 60_000),
    "compression.zstd.level": ("compression_zstd_level", 5),
    "acks": ("acks", "all"),
}


@pytest.mark.parametrize("name", NAMES)
def test_an_option_takes_kafkas_name(name: str) -> None:
    own, value = NAMES[name]
    text = str(value).lower()
    read = load_workload("1kB", [f"workload.producer.{name}={text}"])
    assert getattr(read.producer, own) == value
    same = load_workload("1kB", [f"workload.producer.{own}={text}"])
    assert describe(read) == describe(same)


def test_a_file_takes_kafkas_names(tmp_path: Path) -> None:
    text = (ROOT / "conf" / "workloads" / "1kB.yaml").read_text(encoding="utf-8")
    text = text.replace("linger_ms: 25", "linger.ms: 3").replace("max_in_flight:", "max.in.flight:")
    path = tmp_path / "mine.yaml"
    path.write_text(text + "consumers:\n  fetch.min.bytes: 9\n", encoding="utf-8")
    read = load_workload(str(path))
    assert (read.producer.linger_ms, read.consumers.fetch_min_bytes) == (3, 9)


def test_a_key_under_both_names_is_refused(tmp_path: Path) -> None:
    text = (ROOT / "conf" / "workloads" / "1kB.yaml").read_text(encoding="utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("linger_ms: 25", "linger_ms: 25\n  linger.ms: 3"))
    words = r"line \d+: producer\.linger\.ms is given a second time, first as linger_ms in .*line"
    with pytest.raises(ConfigError, match=words):
        load_workload(str(path))


def test_the_message_for_a_wrong_name_has_the_nearest() -> None:
    with pytest.raises(ConfigError, match="the nearest known key is linger_ms"):
        load_workload("1kB", ["workload.producer.linger.m=3"])
    with pytest.raises(ConfigError, match=r"producer\.linger_ms is -1"):
        load_workload("1kB", ["workload.producer.linger.ms=-1"])


def test_no_key_has_the_kafka_name_of_another() -> None:
    read = load_workload("1kB")
    keys = {key.split(".", 1)[1] for key in describe(read) if key.split(".")[0] in SECTIONS}
    assert all(own_name(key) == key for key in keys | set(describe(ConsumerOptions())))
