"""A traffic pattern: its derived values, and its way from the driver to executors."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.config import load_workload
from metrics.traffic.axes import AXES, Axis
from metrics.traffic.clients import ConsumerOptions
from metrics.traffic.pattern import TopicOptions
from metrics.traffic.payload import Sizes
from tests.support.patterns import pattern, plan

MANY = pattern(
    9, message_bytes=3_000, rate_records_per_s=12.5, acks="all", compression="zstd",
    client="librdkafka", kind="mixed", compressibility=0.25, sizes="uniform", size_spread=0.5,
    key_bytes=8, seed=7, ramp_up_s=0.05,
    topic=TopicOptions(count=2, replication_factor=3, config={"min.insync.replicas": "2"}),
    consumers=ConsumerOptions(groups=3, start="backlog", backlog_records=1_000),
)  # fmt: skip


@pytest.mark.parametrize("axis", AXES.values(), ids=lambda axis: str(axis.name))
def test_a_pattern_reaches_the_executors_unchanged(axis: Axis) -> None:
    made = replace(axis.apply(MANY, 5), brokers=3, point_message_bytes=3_000)
    whole = plan(pattern=made, client_options={"security_protocol": "PLAINTEXT"})
    sent = pickle.loads(pickle.dumps(whole))
    assert sent == whole
    got = sent.pattern
    assert (got.mb_per_s, got.planned_bytes, got.on_axis) == (made.mb_per_s, made.planned_bytes, 5)
    assert got.producer.records_per_batch == made.producer.records_per_batch
    assert hash(got.producer) == hash(made.producer), "pools of it are found again"


def test_a_histogram_is_read_on_the_driver_and_travels_along(tmp_path: Path) -> None:
    path = tmp_path / "sizes.txt"
    path.write_text("100 3\n300 1\n", encoding="utf-8")
    overrides = ["workload.payload.sizes=histogram", f"workload.payload.histogram_file={path}"]
    made = load_workload("demo", overrides).pattern(1_000)
    data = pickle.dumps(made)
    path.unlink()
    got = pickle.loads(data)
    assert got == made
    sizes = Sizes("histogram", histogram=((100, 3.0), (300, 1.0)))
    assert got.producer.payload.distribution == sizes
