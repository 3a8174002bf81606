"""The messages for wrong workloads, options and files."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.config import (
    available,
    load,
    load_cluster,
    load_goal,
    load_workload,
)
from jobs.config.suite import load_suite
from metrics.common.errors import ConfigError

ALIAS_BOMB = "a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in itertools.pairwise("abcdefgh")
)


def refusal(*overrides: str, workload: str = "demo") -> str:
    """The message of the refusal of a workload."""
    with pytest.raises(ConfigError) as caught:
        load_workload(workload, [f"workload.{each}" for each in overrides])
    return str(caught.value)


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("producer.linger=1", ("unknown key", "nearest known key is linger_ms")),
        ("linger_ms=1", ("unknown key", "producer.linger_ms", "move it there")),
        ("zzz=1", ("unknown key", "expected one of name, description, message_bytes")),
        ("producer.linger_ms=fast", ('"fast", a text', "a number of milliseconds from 0")),
        ("producer.linger_ms=-1", ("is -1", "from 0 to 60000", "default 5.0")),
        ("producer.linger_ms=true", ("true, a boolean", "a number of milliseconds")),
        ("producer.linger_ms=.nan", ("a number of milliseconds",)),
        ("producer.rate_bytes_per_s=0", ("is 0", "above 0")),
        ("producer.rate_bytes_per_s=.inf", ("is inf", "up to 10000000000")),
        (
            "producer.rate_records_per_s=5",
            ("and rate_records_per_s are given", "exactly one"),
        ),
        ("producer.rate_bytes_per_s=null", ("none is given", "exactly one")),
        ("producer.rate_bytes_per_s=10", ("0.8 messages of 100 B", "raise the producer's rate")),
        ("producer.acks=2", ("producer.acks is 2", "expected 0, 1 or all")),
        ("producer.acks=true", ("expected 0, 1 or all",)),
        ("producer=5", ("producer is 5", "a map of keys and values")),
        ("producer.max_in_flight=1.5", ("1.5", "a whole number of requests")),
        ("producer.buffer_memory=2000", ("producer.buffer_memory is 2000", "20000")),
        ("message_bytes=100", ("message_bytes is 100", "a list")),
        ("message_bytes=[]", ("at least one item",)),
        ("message_bytes=[100, -1]", ("message_bytes.1 is -1", "from 1 to 10000000")),
        ("message_bytes=[100000000]", ("message_bytes.0 is 100000000", "from 1 to 10000000")),
        ("message_bytes=[5, 5]", ("holds 5 more than once",)),
        (
            "message_bytes.0=5",
            ("--set workload.message_bytes.0", "workload.message_bytes", "a list"),
        ),
        ("payload.kind=zeros", ('"zeros"', "expected random")),
        ("topic.replication_factor=0", ("is 0", "replicas from 1")),
        ("topic.replication_factor=null", ("is null", "replicas from 1")),
        ("topic.config=[1]", ("a list", "a map of Kafka property names")),
        ("topic.config.a=[1]", ("a text, number or boolean",)),
        ("topic.config.min.insync.replicas=3", ("min.insync.replicas is 3", "factor 2")),
        ("trial={}", ("trial.warmup_s is missing", "a number of seconds", "trial.measure_s")),
        ("trial.sample_interval_s=5", ("at least 4 samples", "measure longer")),
        ("trial=null", ("trial is null",)),
        (
            "producer.transaction_duration_ms=100",
            ("enable_idempotence false, with acks 1", "expected enable_idempotence true"),
        ),
    ],
)
def test_the_message_for_a_wrong_workload_states_value_and_expectation(
    override: str, parts: tuple[str, ...], snapshot: SnapshotAssertion
) -> None:
    message = refusal(override)
    assert message == snapshot
    for part in parts:
        assert part in message
    assert "pydantic" not in message


def test_a_value_that_is_not_yaml_is_refused() -> None:
    message = refusal("producer.linger_ms=[1")
    assert message.startswith("--set workload.producer.linger_ms: the value is malformed, line 1")


def test_a_message_names_file_and_line_or_the_option() -> None:
    assert refusal("producer.linger_ms=-1").startswith("--set workload.producer.linger_ms: ")
    assert refusal("topic.config.min.insync.replicas=3").startswith(
        "conf/workloads/demo.yaml, line"
    )


def test_a_wrong_item_is_one_problem_without_a_list_that_is_too_short() -> None:
    assert len(refusal("message_bytes=[-1]").splitlines()) == 1


def test_many_problems_take_few_lines() -> None:
    message = refusal("message_bytes=[-1, -2, -3, -4, -5, -6, -7]")
    assert len(message.splitlines()) == 6
    assert message.endswith("and 2 more problems in conf/workloads/demo.yaml")


@pytest.mark.parametrize(
    ("option", "part"),
    [
        ("wrkload.x=1", "did you mean workload?"),
        ("zzz.x=1", "cluster, workload or goal"),
        ("workload", "key.path=value"),
        ("workload=1", "key.path=value"),
        ("workload..x=1", "key.path=value"),
    ],
)
def test_a_malformed_option_is_refused_for_any_file(
    option: str, part: str, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_workload("demo", [option])
    assert str(caught.value) == snapshot
    assert part in str(caught.value)
    with pytest.raises(ConfigError, match=re.escape(str(caught.value))):
        load_goal("default", [option])


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("---\n", "is empty"),
        ("[1, 2]", "holds a list"),
        ("resolution", "holds a text"),
        ("search: {resolution: 0.1,\n  resolution: 0.2}", "line 2: search.resolution is given a"),
        ("search: {}\nsearch: {}", "line 2: search is given a second time, first in"),
        ("search: &a [*a]", "line 1: search.0"),
        ("true: 1", 'line 1: "true"'),
        ("[1]: 1", "line 1: a list or map"),
        ("search: {load_cap: !!int x}", "line 1: the value in search.load_cap"),
        ("search: {load_cap: 12:30}", '"12:30", a text'),
        ("search: {load_start_max: 9, load_cap: 8}", "load_start_max is 9 and load_cap 8"),
        ("search: {resolution: 0.6}", "a number above 0 up to 0.5"),
        ("search: {resolution: 0}", "a number above 0 up to 0.5"),
        ("indicators: {achieved_min: 1.1}", "a number above 0 up to 1"),
        ("indicators: {latency_p99_ms_max: 0}", "a number of milliseconds above 0 up to 600000"),
        ("name: a/b", "a name of at most 80 letters"),
        ("x: !!python/object/apply:os.getcwd []", "tag !!python/object/apply:os.getcwd"),
        ("base: &b {x: 1}\nsearch:\n  <<: *b\n", 'line 3: "<<" is used as a key in search'),
        ("x: !foo [1]", "line 1: the value in x has the tag !foo"),
        ("x: !!omap [a: 1]", "tag !!omap"),
        ("null: 3", 'line 1: "null"'),
        ("search: {load_cap: !!bool maybe}", "line 1: the value in search.load_cap"),
        pytest.param(f"x: {'[' * 2_000}", "nested too deeply", id="deep"),
        pytest.param(ALIAS_BOMB, "more than 10,000 values", id="many"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(
    tmp_path: Path, text: str, part: str, snapshot: SnapshotAssertion
) -> None:
    message = refusal_of_goal(tmp_path, text)
    assert message.replace(str(tmp_path), "…") == snapshot
    assert part in message
    assert str(tmp_path / "strict.yaml") in message


def refusal_of_goal(folder: Path, text: str) -> str:
    """The message of the refusal of a goal with this text."""
    goal_file = folder / "strict.yaml"
    goal_file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_goal(str(goal_file))
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("search:\n\tload_cap: 4", "line 2, column 1: found character"),
        ("search: *nowhere", "undefined alias"),
        ("search: {}\n---\nsearch: {}", "another document"),
    ],
)
def test_malformed_yaml_is_refused_with_the_reason_of_the_parser(
    tmp_path: Path, text: str, part: str
) -> None:
    message = refusal_of_goal(tmp_path, text)
    assert part in message
    assert str(tmp_path / "strict.yaml") in message


def test_a_file_without_readable_text_is_refused(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe")
    for path in (binary, tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(ConfigError) as caught:
            load_goal(str(path))
        assert str(path) in str(caught.value)
        assert str(caught.value).replace(str(tmp_path), "…") == snapshot


def test_mistakes_of_several_files_are_in_one_message_and_each_once() -> None:
    def refused(*overrides: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load("testbed", "demo", "default", overrides)
        return str(caught.value).splitlines()

    acks, bogus = refused("workload.producer.acks=5", "goal.bogus=1")
    assert "producer.acks" in acks
    assert "bogus is an unknown key" in bogus
    assert len(refused("nowhere.key=1")) == 1, "an option for no file appears once"


def test_an_unknown_name_gets_the_nearest_and_all() -> None:
    with pytest.raises(ConfigError) as caught:
        load_workload("dmo")
    message = str(caught.value)
    assert "the nearest is demo" in message
    assert all(name in message for name in available("workload"))
    assert caught.value.exit_code == 2


def test_a_file_of_another_program_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "brokers").write_text("[all]")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"is a file, and its name does not end in \.yaml"):
        load_cluster("brokers")


def test_a_suite_without_cases_gets_a_description_of_cases(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text("description: nothing")
    words = (
        "cases is missing; expected a list of one or more, each of them a map of keys and values"
    )
    with pytest.raises(ConfigError, match=words):
        load_suite(str(tmp_path / "suite.yaml"))


def test_a_missing_list_is_refused_with_a_description_of_its_items(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("description: nothing")
    words = "message_bytes is missing; expected a list of one or more, each of them a whole number"
    with pytest.raises(ConfigError, match=words):
        load_workload(str(tmp_path / "mine.yaml"))


TRANSACTIONS = (
    "producer.acks=all",
    "producer.enable_idempotence=true",
    "producer.transaction_duration_ms=100",
)


def test_a_transaction_has_a_record_and_only_the_client_wire_reads_along(
    snapshot: SnapshotAssertion,
) -> None:
    message = refusal(*TRANSACTIONS, "message_bytes=[100000]")
    assert "messages of 100000 B in a transaction of 100 ms" in message
    assert message == snapshot
    message = refusal(*TRANSACTIONS, "consumers.groups=1", "consumers.client=librdkafka")
    assert "expected consumers.client wire" in message
    assert message == snapshot
