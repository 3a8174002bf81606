"""The text of exporters, and the rule sets that map its series to readings."""

from __future__ import annotations

from pathlib import Path

from syrupy.assertion import SnapshotAssertion

from jobs.config.files import names_in
from jobs.config.metrics_registry import load_rules
from metrics.sources.bean_series import BEANS, candidates_of
from metrics.sources.beans import PRODUCE_ERRORS
from metrics.sources.exposition import parse_series, series_of
from metrics.sources.rules import READINGS, rule_set


def test_a_line_begins_with_its_series() -> None:
    series = {
        "a 1": "a",
        "# TYPE b gauge": "",
        'b{x="} {",y="q"} NaN 1395066363000': 'b{x="} {",y="q"}',
        'c{x="1",}2.5E3': 'c{x="1",}',
        "broken": "",
        "": "",
    }
    assert {line: series_of(line) for line in series} == series


def test_labels_are_unescaped_and_a_malformed_series_is_not_parsed() -> None:
    escaped = r'm{path="C:\\DIR\n",quote="\""}'
    assert parse_series(escaped) == ("m", {"path": "C:\\DIR\n", "quote": '"'})
    assert parse_series('m{a="1",}') == ("m", {"a": "1"})
    assert parse_series("m") == ("m", {})
    malformed = ("", "1a", "m{a=1}", 'm{="1"}', 'm{a="1"', "m a")
    assert [parse_series(text) for text in malformed] == [None] * 6


RULES = rule_set(
    "test",
    {
        "messages_in": "in_total",
        "network_wait_ns": 'wait{listener="*",networkProcessor="*"}',
        "gc_ms": {"series": "java_lang_*_CollectionTime", "factor": 2},
        "heap_used_bytes": ['new{area="heap"}', 'old{area="heap"}'],
    },
)


def test_a_series_is_a_reading_by_its_name_and_all_its_labels() -> None:
    readings = {
        "in_total": "messages_in",
        "in": "messages_in",
        'in_total{topic="a"}': None,
        'wait_total{networkProcessor="2",listener="TLS",}': "network_wait_ns:TLS/2",
        'wait{listener="TLS"}': None,
        "java_lang_G1_Old_CollectionTime": "gc_ms:G1_Old",
        'old{area="nonheap"}': None,
        'old{area="heap"}': "heap_used_bytes",
        "other": None,
    }
    found = {series: RULES.match(series) for series in readings}
    assert {series: match and match.reading for series, match in found.items()} == readings


def test_the_rule_sets_that_come_with_the_project_know_the_handlers() -> None:
    for name in names_in("prometheus"):
        known = load_rules(name).selectors
        assert {"handler_idle_ns", "broker_handler_idle_ns", "active_controller"} <= set(known)
        not_mapped = {reading for reading in READINGS if reading not in known}
        exact = {reading for reading in not_mapped if not reading.endswith("_mean")}
        assert exact <= {"processors", "machine_cpu_share"}
        assert not (name == "msk" and not_mapped)


def test_the_name_before_kafka_3_is_read_where_the_newer_one_is_missing() -> None:
    sockets = "kafka_server_socket_server_metrics"
    labels = '{listener="TLS",networkProcessor="2"}'
    for rules, begin, end in (
        ("msk", f"{sockets}_", labels),
        ("strimzi", f"{sockets}_", labels),
        ("kafka-kraft", f"{sockets}_listener_TLS_networkprocessor_2_", ""),
    ):
        newer, older = (
            load_rules(rules).match(f"{begin}{name}{end}")
            for name in ("io_wait_time_ns", "io_waittime")
        )
        assert newer is not None and older is not None
        assert newer.reading == older.reading == "network_wait_ns:TLS/2"
        assert newer.rank < older.rank


# --- the reading of a series, by the names of its bean in any spelling ------------


SOCKETS = "kafka_server_socket_server_metrics"


def read(series: str, **constant: str) -> list[str]:
    found = candidates_of(series, frozenset(constant.items()))
    return [f"{each.reading}, {each.meaning.value}" for each in found]


SERIES = (Path(__file__).parents[1] / "data/exporter/series.txt").read_text("utf-8").splitlines()
"""The idle time of the handlers under several rules, other readings, and series that are none."""


def test_a_series_is_recognized_under_all_of_its_names(snapshot: SnapshotAssertion) -> None:
    assert {series: read(series) for series in SERIES} == snapshot


def test_a_bean_has_no_label_that_all_series_have_and_a_star_for_each_of_several() -> None:
    series = 'kafka_server_brokertopicmetrics_bytesin_total{env="prod"}'
    assert read(series, env="prod") == ["bytes_in, uncertain"]
    assert read(series) == read(series, env="test") == []
    for given, text in (
        ("listener_SASL_SSL_networkprocessor_12_io_wait_time_ns_total",
         "listener_*_networkprocessor_*_io_wait_time_ns_total"),
        ('incoming_byte{networkProcessor="1",listener="A"}',
         'incoming_byte{listener="*",networkProcessor="*"}'),
    ):  # fmt: skip
        (found,) = candidates_of(f"{SOCKETS}_{given}")
        assert found.selector.text == f"{SOCKETS}_{text}"


def test_every_reading_has_a_bean() -> None:
    named = {bean.reading for bean in BEANS}
    bases = {reading.removesuffix("_count").removesuffix("_mean") for reading in READINGS}
    assert bases - named == {PRODUCE_ERRORS}, "only rule sets name it"
