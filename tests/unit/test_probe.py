"""What a broker does to the first record of a run, and the sentence that follows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.cluster import probe
from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.topic_set import TopicSet
from jobs.config import load_workload
from metrics.common.errors import ConfigError

PATTERN = load_workload("demo").pattern(100)
TOPICS = TopicSet(("t",), 100, {0: (1, 2), 1: (2, 1), 2: (1, 2)})


class Brokers:
    """Brokers that answer each produce request and each fetch in one way."""

    def __init__(self, code: int = 0, text: str = "", high_watermark: int = 8) -> None:
        self.asked: list[tuple[str, int]] = []
        written = SimpleNamespace(
            error_code=code, record_errors=(), error_message=text, base_offset=7
        )
        read = SimpleNamespace(error_code=code, high_watermark=high_watermark)
        self._answer = SimpleNamespace(
            responses=[SimpleNamespace(partition_responses=[written], partitions=[read])]
        )

    def query(self, what: str, _: Any, broker: int, *more: Any, read: Any = None) -> Any:
        self.asked.append((what, broker))
        return (read or more[-1])(self._answer)


def probed(brokers: Brokers) -> None:
    probe.require_records_accepted(cast(KafkaAdmin, brokers), TOPICS, PATTERN)


def test_each_leader_takes_one_record_and_gives_it_back() -> None:
    brokers = Brokers()
    probed(brokers)
    both = ("write a record", "read a record back")
    assert brokers.asked == [(what, broker) for broker in (1, 2) for what in both]


def test_a_refusal_has_the_brokers_own_words() -> None:
    with pytest.raises(ConfigError) as raised:
        probed(Brokers(32, "Timestamp 5 is out of range"))
    assert (
        "partition 0 of topic t, led by broker 1, refused a record of this workload "
        "(InvalidTimestampError: Timestamp 5 is out of range); expected" in str(raised.value)
    )


def test_a_record_below_the_high_watermark_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "READ_S", 0.0)
    with pytest.raises(ConfigError, match="acknowledged a record that no consumer could read"):
        probed(Brokers(high_watermark=7))
