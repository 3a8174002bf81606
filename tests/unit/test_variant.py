"""The options that distinguish traffic patterns at any load."""

from __future__ import annotations

from dataclasses import replace

from jobs.config import load
from metrics.tables.boundary import variant_of


def variant(*options: str, producers: int = 8) -> dict[str, str]:
    return variant_of(load("testbed", "demo", "default", options).pattern(100, producers, 3))


def test_options_make_a_variant_and_the_load_or_the_length_of_a_trial_does_not() -> None:
    whole = variant()
    assert variant(producers=80) == variant("workload.trial.measure_s=20") == whole
    for option in (
        "producer.acks=all",
        "producer.linger_ms=5",
        "producer.compression=lz4",
        "topic.replication_factor=3",
        "topic.config.min.insync.replicas=2",
        "consumers.groups=2",
        "payload.kind=repeated",
    ):
        assert variant(f"workload.{option}") != whole, option


def test_the_axis_of_the_search_makes_no_variant() -> None:
    along = ("goal.search.axis=partitions", "goal.search.load_cap=1000", "workload.np=4")
    config = load("testbed", "demo", "default", along)
    two, ten = (variant_of(config.pattern(100, each, 3)) for each in (2, 10))
    assert two == ten
    other = replace(config, workload=config.workload.model_copy(update={"np": 5}))
    assert variant_of(other.pattern(100, 2, 3)) != two
