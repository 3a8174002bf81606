"""The options that distinguish traffic patterns at any load."""

from __future__ import annotations

from dataclasses import replace

from jobs.config import load
from metrics.tables.boundary import variant_of

BASE = load("testbed", "demo", "default")


def variant(*options: str, message_bytes: int = 100, producers: int = 8) -> dict[str, str]:
    return variant_of(
        load("testbed", "demo", "default", options).pattern(message_bytes, producers, 3)
    )


def test_load_size_and_length_of_a_trial_make_no_other_pattern() -> None:
    whole = variant()
    assert variant(producers=80) == whole
    assert variant(message_bytes=100, producers=1) == whole
    assert variant("workload.trial.measure_s=20") == whole
    assert not {"np", "load", "measure_s", "point_bpm"} & {k for k in whole if whole[k] != "1"}


def test_every_option_makes_a_variant() -> None:
    whole = variant()
    for option in (
        "workload.producer.acks=all",
        "workload.producer.linger_ms=5",
        "workload.producer.compression=lz4",
        "workload.topic.replication_factor=3",
        "workload.topic.config.min.insync.replicas=2",
        "workload.consumers.groups=2",
        "workload.payload.kind=repeated",
    ):
        assert variant(option) != whole, option


def test_the_axis_of_the_search_makes_no_variant() -> None:
    along = (
        "goal.search.axis=partitions",
        "goal.search.load_cap=1000",
        "workload.np=4",
    )
    config = load("testbed", "demo", "default", along)
    two, ten = (variant_of(config.pattern(100, each, 3)) for each in (2, 10))
    assert two == ten
    other = replace(config, workload=config.workload.model_copy(update={"np": 5}))
    assert variant_of(other.pattern(100, 2, 3)) != two
