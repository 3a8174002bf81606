"""The text of exporters, and the rule sets that map its series to readings."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.config.exporter_rules import load_rules
from jobs.config.files import names_in
from metrics.common.errors import ConfigError
from metrics.sources.exposition import parse_series, series_of
from metrics.sources.rules import READINGS, rule_set


@pytest.mark.parametrize(
    ("line", "series"),
    [
        ("a 1", "a"),
        ("# TYPE b gauge", ""),
        ('b{x="} {",y="q"} NaN 1395066363000', 'b{x="} {",y="q"}'),
        ('c{x="1",}2.5E3', 'c{x="1",}'),
        ("broken", ""),
        ("", ""),
    ],
)
def test_a_line_begins_with_its_series(line: str, series: str) -> None:
    assert series_of(line) == series


def test_labels_are_unescaped() -> None:
    assert parse_series(r'm{path="C:\\DIR\n",quote="\""}') == (
        "m",
        {"path": "C:\\DIR\n", "quote": '"'},
    )
    assert parse_series('m{a="1",}') == ("m", {"a": "1"})
    assert parse_series("m") == ("m", {})


@pytest.mark.parametrize("text", ["", "1a", "m{a=1}", 'm{="1"}', 'm{a="1"', "m a"])
def test_a_malformed_series_is_not_parsed(text: str) -> None:
    assert parse_series(text) is None


RULES = rule_set(
    "test",
    {
        "messages_in": "in_total",
        "network_wait_ns": 'wait{listener="*",networkProcessor="*"}',
        "gc_ms": {"series": "java_lang_*_CollectionTime", "factor": 2},
        "heap_used_bytes": ['new{area="heap"}', 'old{area="heap"}'],
    },
)


@pytest.mark.parametrize(
    ("series", "reading"),
    [
        ("in_total", "messages_in"),
        ("in", "messages_in"),
        ('in_total{topic="a"}', None),
        ('wait_total{networkProcessor="2",listener="TLS",}', "network_wait_ns:TLS/2"),
        ('wait{listener="TLS"}', None),
        ("java_lang_G1_Old_CollectionTime", "gc_ms:G1_Old"),
        ('old{area="nonheap"}', None),
        ('old{area="heap"}', "heap_used_bytes"),
        ("other", None),
    ],
)
def test_a_series_is_a_reading_by_its_name_and_all_its_labels(
    series: str, reading: str | None
) -> None:
    match = RULES.match(series)
    assert (match and match.reading) == reading


@pytest.mark.parametrize("name", names_in("prometheus"))
def test_the_rule_sets_that_come_with_the_project_know_the_handlers(name: str) -> None:
    rules = load_rules(name)
    assert {"handler_idle_ns", "broker_handler_idle_ns", "active_controller"} <= set(
        rules.selectors
    )
    not_mapped = {reading for reading in READINGS if reading not in rules.selectors}
    exact = {reading for reading in not_mapped if not reading.endswith("_mean")}
    assert exact <= {"processors", "machine_cpu_share"}
    assert not (name == "msk" and not_mapped)


@pytest.mark.parametrize(
    ("rules", "series"),
    [
        ("msk", 'kafka_server_socket_server_metrics_NAME{listener="TLS",networkProcessor="2"}'),
        ("strimzi", 'kafka_server_socket_server_metrics_NAME{listener="TLS",networkProcessor="2"}'),
        ("kafka-kraft", "kafka_server_socket_server_metrics_listener_TLS_networkprocessor_2_NAME"),
    ],
)
def test_the_name_before_kafka_3_is_read_where_the_newer_one_is_missing(
    rules: str, series: str
) -> None:
    known = load_rules(rules)
    newer, older = (
        known.match(series.replace("NAME", each)) for each in ("io_wait_time_ns", "io_waittime")
    )
    assert newer is not None and older is not None
    assert newer.reading == older.reading == "network_wait_ns:TLS/2"
    assert newer.rank < older.rank


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("readings: {mesages_in: a}", "maps mesages_in, .*; expected one of uptime_ms, "),
        ("readings: {messages_in: 'a b'}", "expected a series such as name"),
        ("readings: {messages_in: {metric: a}}", "expected a series, or a map with series"),
        ("readings: {messages_in: {series: a, factor: x}}", "a number as factor"),
        ("rules: []", "expected the one key readings"),
    ],
)
def test_a_wrong_rule_set_is_refused_with_the_remedy(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_rules(str(path))


def test_an_unknown_rule_set_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match="the nearest is strimzi"):
        load_rules("strimsi")
    with pytest.raises(ConfigError, match=r"none\.yaml does not exist"):
        load_rules("none.yaml")
