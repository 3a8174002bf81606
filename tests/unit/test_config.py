"""Clusters, workloads and goals: the values of files, and the effect of overrides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.cluster.topic_plan import largest_batch_bytes
from jobs.config import Workload, available, describe, load_cluster, load_goal, load_workload
from jobs.config.base import section_model
from jobs.config.overrides import SECTIONS, own_name
from metrics.common.errors import ConfigError
from metrics.judging.thresholds import Indicators, Thresholds, Validity
from metrics.traffic.clients import ConsumerOptions, ProducerOptions
from metrics.traffic.pattern import TopicOptions
from search.budget import Budget
from tests.support.commands import ROOT


def workload_with(*overrides: str) -> Workload:
    return load_workload("demo", [f"workload.{each}" for each in overrides])


def test_every_file_of_conf_loads() -> None:
    for name in available("cluster"):
        cluster = load_cluster(name)
        assert cluster.name == name
        assert (cluster.testbed is None) != (cluster.bootstrap_servers is None), name
    for name in available("workload"):
        workload = load_workload(name)
        assert workload.name == name and workload.description
    for name in available("goal"):
        assert load_goal(name).name == name


def test_the_default_goal_has_the_default_thresholds() -> None:
    assert load_goal("default").thresholds == Thresholds()
    limits = ["goal.indicators.network_idle_min=0.3", "goal.validity.loop_busy_max=0.5"]
    changed = load_goal("default", limits).thresholds
    assert changed == Thresholds(Indicators(network_idle_min=0.3), Validity(loop_busy_max=0.5))


def test_a_path_names_the_goal_after_the_file_unless_it_states_a_name(tmp_path: Path) -> None:
    file = tmp_path / "strict.yaml"
    file.write_text("search: {resolution: 5e-2, load_cap: 0200}\n", encoding="utf-8")
    goal = load_goal(str(file))
    found = (goal.name, goal.search.resolution, goal.search.load_cap)
    assert found == ("strict", 0.05, 200), "numbers are read as people intend"
    file.write_text("name: tolerant\n", encoding="utf-8")
    goal = load_goal(str(file))
    assert (goal.name, goal.search.load_cap) == ("tolerant", 20_000)


def test_options_replace_single_keys(snapshot: SnapshotAssertion) -> None:
    """By option, or by several: the keys of the workload demo that have another value then."""
    plain, changes = describe(load_workload("demo")), {}
    for row in (ROOT / "tests/data/options.txt").read_text(encoding="utf-8").splitlines():
        changed = describe(workload_with(*row.split("  "))).items()
        changes[row] = {key: value for key, value in changed if plain.get(key) != value}
    assert changes == snapshot


def test_a_rate_in_bytes_gives_fewer_records_of_larger_messages() -> None:
    assert ProducerOptions(rate_records_per_s=1_000.0).records_per_s(500) == 1_000.0
    producer = ProducerOptions(rate_bytes_per_s=1_000.0)
    assert (producer.records_per_s(10), producer.records_per_s(500)) == (100.0, 2.0)
    workload = workload_with("producer.rate_bytes_per_s=125000")
    patterns = [workload.pattern(size) for size in (100, 1_000, 10_000)]
    assert [each.producer.rate_records_per_s for each in patterns] == [1_250.0, 125.0, 12.5]
    assert {each.mb_per_s for each in patterns} == {0.125}


def test_kafka_properties_keep_their_dots_and_become_text() -> None:
    testbed = load_cluster("testbed", ["cluster.testbed.properties.num.io.threads=1"]).testbed
    assert testbed is not None
    assert testbed.properties["num.io.threads"] == "1"
    codes = [workload_with(f"producer.acks={acks}").producer.acks_code for acks in (0, 1, "all")]
    assert codes == [0, 1, -1]


def test_a_histogram_is_read_from_lines_of_size_and_weight(tmp_path: Path) -> None:
    path = tmp_path / "sizes.txt"
    path.write_text("# size weight\n100 3\n\n300, 1  # rare\n", encoding="utf-8")
    given = workload_with("payload.sizes=histogram", f"payload.histogram_file={path}").payload
    assert given.distribution.histogram == ((100, 3.0), (300, 1.0))
    assert given.distribution.largest(1_000) == 2_000


def test_the_largest_message_decides_the_size_limit_of_the_topic() -> None:
    def largest(message_bytes: int, *overrides: str) -> int:
        return largest_batch_bytes(workload_with(*overrides).pattern(message_bytes).producer)

    assert largest(10_000) == 10_072
    varied = largest(10_000, "payload.sizes=uniform", "payload.size_spread=1")
    assert varied == pytest.approx(20_071, abs=3)
    assert largest(100_000, "producer.compression=zstd", "payload.kind=repeated") == 16_384


def test_the_model_of_a_section_has_its_fields_and_is_made_once() -> None:
    kinds: Sequence[Any] = (ProducerOptions, Indicators, Budget)
    for kind in kinds:
        model = section_model(kind)
        assert list(model.model_fields) == [item.name for item in fields(kind)]
        assert section_model(kind) is model
    config = section_model(TopicOptions).model_fields["config"]
    assert config.default_factory is dict, "a mutable default is created for each section"


def test_a_file_takes_kafkas_names_and_refuses_both_names_of_a_key(tmp_path: Path) -> None:
    text = (ROOT / "conf" / "workloads" / "1kB.yaml").read_text(encoding="utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(
        text.replace("linger_ms: 25", "linger.ms: 3") + "consumers: {check.crcs: false}"
    )
    read = load_workload(str(path))
    assert (read.producer.linger_ms, read.consumers.check_crcs) == (3, False)
    path.write_text(text.replace("linger_ms: 25", "linger_ms: 25\n  linger.ms: 3"))
    words = r"line \d+: producer\.linger\.ms is given twice, first as linger_ms in .*line"
    with pytest.raises(ConfigError, match=words):
        load_workload(str(path))


def test_no_key_has_the_kafka_name_of_another() -> None:
    read = load_workload("1kB")
    keys = {key.split(".", 1)[1] for key in describe(read) if key.split(".")[0] in SECTIONS}
    assert all(own_name(key) == key for key in keys | set(describe(ConsumerOptions())))
