"""Clusters, workloads and goals: the values of files, and the effect of overrides."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from pydantic import ValidationError

from jobs.config import (
    Workload,
    available,
    describe,
    load,
    load_cluster,
    load_goal,
    load_workload,
)
from metrics.judging.thresholds import Indicators, Thresholds, Validity
from metrics.traffic.producer import ProducerOptions


@pytest.fixture
def goal_file(tmp_path: Path) -> Path:
    path = tmp_path / "strict.yaml"
    path.write_text("search:\n  resolution: 0.1\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("name", available("cluster"))
def test_every_cluster_of_conf_loads(name: str) -> None:
    cluster = load_cluster(name)
    assert cluster.name == name
    assert (cluster.testbed is None) != (cluster.bootstrap_servers is None)


@pytest.mark.parametrize("name", available("workload"))
def test_every_workload_of_conf_loads(name: str) -> None:
    workload = load_workload(name)
    assert workload.name == name
    assert workload.description


@pytest.mark.parametrize("name", available("goal"))
def test_every_goal_of_conf_loads(name: str) -> None:
    assert load_goal(name).name == name


def test_the_files_of_the_demo_are_there_and_fit_together() -> None:
    loaded = load("testbed", "demo", "default")
    assert loaded.cluster.testbed is not None
    assert loaded.workload.message_bytes == (100, 1_000, 10_000)
    assert loaded.goal.indicators.request_handler_idle_min == 0.20


def test_the_default_goal_has_the_default_thresholds() -> None:
    assert load_goal("default").thresholds == Thresholds()
    limits = ["goal.indicators.network_idle_min=0.3", "goal.validity.loop_busy_max=0.5"]
    changed = load_goal("default", limits).thresholds
    assert changed == Thresholds(Indicators(network_idle_min=0.3), Validity(loop_busy_max=0.5))


def test_a_path_names_the_goal_after_the_file(goal_file: Path) -> None:
    goal = load_goal(str(goal_file))
    assert goal.name == "strict"
    assert goal.search.resolution == 0.1
    assert goal.search.load_cap == 20_000


def test_a_file_may_state_another_name(goal_file: Path) -> None:
    goal_file.write_text("name: tolerant\n", encoding="utf-8")
    assert load_goal(str(goal_file)).name == "tolerant"


def test_overrides_replace_single_keys_and_the_last_one_takes_effect() -> None:
    overrides = [
        "workload.producer.linger_ms=20",
        "workload.producer.linger_ms=0",
        "workload.message_bytes=[10, 20]",
        "goal.search.load_cap=200",
    ]
    workload = load_workload("demo", overrides)
    assert workload.producer.linger_ms == 0.0
    assert workload.message_bytes == (10, 20)
    assert load_goal("default", overrides).search.load_cap == 200


def test_kafka_properties_keep_their_dots_and_become_text() -> None:
    workload = load_workload(
        "demo",
        ["workload.topic.config.min.insync.replicas=1", "workload.topic.config.preallocate=true"],
    )
    assert workload.topic.config["min.insync.replicas"] == "1"
    assert workload.topic.config["preallocate"] == "true"
    assert "retention.bytes" in workload.topic.config


def test_null_removes_a_key_so_that_the_other_rate_can_be_set() -> None:
    workload = load_workload(
        "demo",
        ["workload.producer.rate_bytes_per_s=null", "workload.producer.rate_records_per_s=1e3"],
    )
    assert workload.producer.records_per_s(500) == 1_000.0
    assert workload.pattern(500).mb_per_s == 0.5


def test_a_rate_in_bytes_gives_fewer_records_of_larger_messages() -> None:
    producer = ProducerOptions(rate_bytes_per_s=1_000.0)
    assert (producer.records_per_s(10), producer.records_per_s(500)) == (100.0, 2.0)
    workload = load_workload("demo", ["workload.producer.rate_bytes_per_s=125000"])
    patterns = [workload.pattern(size) for size in (100, 1_000, 10_000)]
    assert [each.producer.rate_records_per_s for each in patterns] == [1_250.0, 125.0, 12.5]
    assert {each.mb_per_s for each in patterns} == {0.125}


@pytest.mark.parametrize(
    ("given", "kept", "code"),
    [("0", "0", 0), ("1", "1", 1), ("-1", "all", -1), ("all", "all", -1), ('"1"', "1", 1)],
)
def test_acks_has_one_spelling(given: str, kept: str, code: int) -> None:
    producer = load_workload("demo", [f"workload.producer.acks={given}"]).producer
    assert (producer.acks, producer.acks_code) == (kept, code)


def test_configurations_are_frozen_and_cross_to_executors() -> None:
    workload = load_workload("demo")
    with pytest.raises(ValidationError):
        workload.name = "another"
    with pytest.raises(FrozenInstanceError):
        workload.producer.linger_ms = 3.0  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(workload)) == workload


def test_describe_gives_the_paths_that_set_takes() -> None:
    flat = describe(load_workload("demo"))
    assert flat["producer.acks"] == "1"
    assert flat["message_bytes"] == (100, 1_000, 10_000)
    assert "producer.rate_records_per_s" not in flat, "unset"
    assert flat["topic.config"]["segment.bytes"]


def test_yaml_numbers_are_read_as_people_intend(goal_file: Path) -> None:
    goal_file.write_text("search: {resolution: 5e-2, load_cap: 0200}", encoding="utf-8")
    goal = load_goal(str(goal_file))
    assert goal.search.resolution == 0.05
    assert goal.search.load_cap == 200


def test_models_and_files_agree_on_sizes_that_cannot_be_batched() -> None:
    workload = load_workload("demo", ["workload.producer.batch_size=0"])
    assert isinstance(workload, Workload)
    assert workload.producer.batch_size == 0
