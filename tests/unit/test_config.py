"""Clusters, workloads and goals: what the files give, what overrides change, what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from jobs.config import (
    Producer,
    Workload,
    available,
    describe,
    load,
    load_cluster,
    load_goal,
    load_workload,
)
from metrics.thresholds import Thresholds
from search.errors import ConfigError


@pytest.fixture
def goal_file(tmp_path: Path) -> Path:
    path = tmp_path / "strict.yaml"
    path.write_text("search:\n  resolution: 0.1\n", encoding="utf-8")
    return path


def refusal(*overrides: str, workload: str = "demo") -> str:
    """The message of the refusal of a workload."""
    with pytest.raises(ConfigError) as caught:
        load_workload(workload, [f"workload.{each}" for each in overrides])
    return str(caught.value)


def cluster_refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_cluster("example", [f"cluster.{each}" for each in overrides])
    return str(caught.value)


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


def test_the_default_goal_is_what_the_judge_assumes() -> None:
    assert load_goal("default").thresholds(window_min_s=None) == Thresholds()
    assert load_goal("default").thresholds(window_min_s=4.0).window_min_s == 4.0


def test_a_path_names_the_goal_after_the_file(goal_file: Path) -> None:
    goal = load_goal(str(goal_file))
    assert goal.name == "strict"
    assert goal.search.resolution == 0.1
    assert goal.search.load_cap == 20_000


def test_a_file_may_say_another_name(goal_file: Path) -> None:
    goal_file.write_text("name: tolerant\n", encoding="utf-8")
    assert load_goal(str(goal_file)).name == "tolerant"


def test_overrides_replace_single_keys_and_the_last_one_wins() -> None:
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


def test_null_takes_a_key_out_so_that_the_other_rate_can_be_set() -> None:
    workload = load_workload(
        "demo",
        ["workload.producer.rate_bytes_per_s=null", "workload.producer.rate_records_per_s=1e3"],
    )
    assert workload.producer.records_per_s(500) == 1_000.0
    assert workload.producer.bytes_per_s(500) == 500_000.0


def test_a_rate_in_bytes_gives_fewer_records_of_larger_messages() -> None:
    producer = Producer(rate_bytes_per_s=1_000.0)
    assert producer.records_per_s(10) == 100.0
    assert producer.bytes_per_s(10) == 1_000.0


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
        workload.producer.linger_ms = 3.0
    assert pickle.loads(pickle.dumps(workload)) == workload


def test_describe_gives_the_paths_that_set_takes() -> None:
    flat = describe(load_workload("demo"))
    assert flat["producer.acks"] == "1"
    assert flat["message_bytes"] == (100, 1_000, 10_000)
    assert "producer.rate_records_per_s" not in flat, "unset"
    assert flat["topic.config"]["segment.bytes"]


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
        ("producer.rate_records_per_s=5", ("both are given", "exactly one")),
        ("producer.rate_bytes_per_s=null", ("neither is given", "exactly one")),
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
        ("message_bytes.0=5", ("looks for a key inside workload.message_bytes", "a list")),
        ("payload.kind=zeros", ('"zeros"', "expected random")),
        ("topic.replication_factor=0", ("is 0", "replicas from 1")),
        ("topic.replication_factor=null", ("is null", "replicas from 1")),
        ("topic.config=[1]", ("a list", "a map of Kafka property names")),
        ("topic.config.a=[1]", ("a text, number or boolean",)),
        ("topic.config.min.insync.replicas=3", ("min.insync.replicas is 3", "factor 2")),
        ("trial={}", ("trial.warmup_s is missing", "a number of seconds", "trial.measure_s")),
        ("trial.sample_interval_s=5", ("at least 4 samples", "measure longer")),
        ("trial=null", ("trial is null",)),
        ("producer.linger_ms=[1", ("malformed", "expected YAML")),
    ],
)
def test_a_wrong_workload_says_what_was_given_and_what_was_expected(
    override: str, parts: tuple[str, ...]
) -> None:
    message = refusal(override)
    for part in parts:
        assert part in message
    assert "pydantic" not in message


def test_a_message_names_file_and_line_or_the_option() -> None:
    assert refusal("producer.linger_ms=-1").startswith("--set workload.producer.linger_ms: ")
    assert refusal("topic.config.min.insync.replicas=3").startswith(
        "conf/workloads/demo.yaml, line"
    )


def test_a_wrong_item_is_one_problem_and_no_list_that_is_too_short() -> None:
    assert len(refusal("message_bytes=[-1]").splitlines()) == 1


def test_many_problems_take_few_lines() -> None:
    message = refusal("message_bytes=[-1, -2, -3, -4, -5, -6, -7]")
    assert len(message.splitlines()) == 6
    assert message.endswith("and 2 more problems in conf/workloads/demo.yaml")


@pytest.mark.parametrize(
    ("option", "part"),
    [
        ("wrkload.x=1", "did you mean workload? expected cluster, workload or goal"),
        ("zzz.x=1", "expected cluster, workload or goal"),
        ("workload", "another form than key.path=value"),
        ("workload=1", "another form than key.path=value"),
        ("workload..x=1", "another form than key.path=value"),
    ],
)
def test_a_malformed_option_is_refused_whichever_file_is_read(option: str, part: str) -> None:
    for loader in (load_workload, load_goal):
        with pytest.raises(ConfigError, match=r"another form|begins with") as caught:
            loader("demo" if loader is load_workload else "default", [option])
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("---\n", "is empty"),
        ("[1, 2]", "holds a list"),
        ("resolution", "holds a text"),
        ("search:\n\tload_cap: 4", "line 2, column 1: found character"),
        ("search: {resolution: 0.1,\n  resolution: 0.2}", "line 2: search.resolution is given a"),
        ("search: {}\nsearch: {}", "line 2: search is given a second time, first in"),
        ("search: &a [*a]", "refers to what it is a part of"),
        ("search: *nowhere", "undefined alias"),
        ("search: {}\n---\nsearch: {}", "another document"),
        ("true: 1", '"true" stands for a key'),
        ("[1]: 1", "a list or map stands for a key"),
        ("search: {load_cap: !!int x}", "not of the type that its tag says"),
        ("search: {load_cap: 12:30}", '"12:30", a text'),
        ("search: {load_start_max: 9, load_cap: 8}", "load_start_max is 9 and load_cap 8"),
        ("search: {resolution: 0.6}", "a number above 0 up to 0.5"),
        ("search: {resolution: 0}", "a number above 0 up to 0.5"),
        ("indicators: {achieved_min: 1.1}", "a number above 0 up to 1"),
        ("name: a/b", "a name of at most 80 letters"),
        ("x: !!python/object/apply:os.getcwd []", "unknown key"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(goal_file: Path, text: str, part: str) -> None:
    goal_file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_goal(str(goal_file))
    assert part in str(caught.value)
    assert str(goal_file) in str(caught.value)


def test_yaml_numbers_are_read_as_people_mean_them(goal_file: Path) -> None:
    goal_file.write_text("search: {resolution: 5e-2, load_cap: 0200}", encoding="utf-8")
    goal = load_goal(str(goal_file))
    assert goal.search.resolution == 0.05
    assert goal.search.load_cap == 200


def test_what_is_no_readable_text_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe")
    for path, part in (
        (binary, "no UTF-8 text"),
        (tmp_path / "missing.yaml", "does not exist"),
        (tmp_path, "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=part):
            load_goal(str(path))


def test_an_unknown_name_gets_the_nearest_and_all() -> None:
    with pytest.raises(ConfigError) as caught:
        load_workload("dmo")
    message = str(caught.value)
    assert "the nearest is demo" in message
    assert all(name in message for name in available("workload"))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (("jmx=null",), ("jmx is missing", "JMX_PORT")),
        (("jmx={}",), ("exactly one of port",)),
        (("jmx.endpoints.1=a:1",), ("exactly one of port",)),
        (("jmx.prt=1",), ("nearest known key is port",)),
        (("jmx.port=99999",), ("jmx.port is 99999", "from 1 to 65535")),
        (("jmx.port=null", "jmx.endpoints.1=a"), ("an address such as",)),
        (("jmx.port=null", "jmx.endpoints.one=a:1"), ("jmx.endpoints.one", "a whole number")),
        (("bootstrap_servers=[a]",), ("bootstrap_servers.0", "an address such as")),
        (("bootstrap_servers=[a:99999]",), ("an address such as",)),
        (("bootstrap_servers=null",), ("exactly one of testbed",)),
        (("testbed.profile=disk-bound",), ("exactly one of testbed",)),
        (("security.protocol=TLS",), ("PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",)),
    ],
)
def test_a_wrong_cluster_says_what_to_do(
    overrides: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    message = cluster_refusal(*overrides)
    for part in parts:
        assert part in message


def test_a_testbed_brings_its_own_metrics() -> None:
    with pytest.raises(ConfigError, match="brings its own jmx"):
        load_cluster("testbed", ["cluster.jmx.port=9999"])


@pytest.mark.parametrize("version", ["3.8.1", '"4.1"', "4.1", "latest"])
def test_a_testbed_wants_a_whole_version_from_3_9_on(version: str) -> None:
    with pytest.raises(ConfigError, match=r"a Kafka version from 3\.9\.0 on"):
        load_cluster("testbed", [f"cluster.testbed.kafka_version={version}"])


def test_broker_properties_of_a_testbed_can_be_set() -> None:
    cluster = load_cluster("testbed", ["cluster.testbed.properties.num.io.threads=1"])
    assert cluster.testbed is not None
    assert cluster.testbed.properties["num.io.threads"] == "1"


def test_more_replicas_than_testbed_brokers_are_refused() -> None:
    with pytest.raises(ConfigError, match="replication_factor 2, and cluster testbed has"):
        load("testbed", "demo", "default", ["cluster.testbed.brokers=1"])


def test_one_jmx_port_stands_for_every_broker() -> None:
    jmx = load_cluster("example").jmx
    assert jmx is not None
    assert jmx.addresses({1: "a", 2: "::1"}) == {1: "a:9999", 2: "[::1]:9999"}


def test_each_broker_needs_an_endpoint() -> None:
    jmx = load_cluster("example", ["cluster.jmx={endpoints: {1: 'a:1', 2: 'b:2'}}"]).jmx
    assert jmx is not None
    assert jmx.addresses({1: "x"}) == {1: "a:1"}
    with pytest.raises(ConfigError, match="no address for broker 3"):
        jmx.addresses({1: "x", 3: "y"})


def test_models_and_files_agree_on_sizes_that_cannot_be_batched() -> None:
    workload = load_workload("demo", ["workload.producer.batch_size=0"])
    assert isinstance(workload, Workload)
    assert workload.producer.batch_size == 0
