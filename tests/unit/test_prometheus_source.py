"""Reading Prometheus exporters: the text, the rule sets, and servers that fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from jobs.config.exporter_rules import load_rules, rule_names
from metrics.beans import Role
from metrics.evidence import BrokerSample
from metrics.sources.exposition import numbers_of, parse_series
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.rules import READINGS, RuleSet, rule_set
from metrics.sources.shortcomings import CLIENT_ONLY, is_blind, shortcomings
from metrics.sources.source import Endpoint, NodeInfo
from search.errors import ConfigError

HANDLERS = "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_count"
OWN_HANDLERS = "kafka_server_kafkarequesthandlerpool_brokerrequesthandleravgidlepercent_count"
LEADERS = "kafka_server_replicamanager_leadercount"
CONTROLLER = "kafka_controller_kafkacontroller_activecontrollercount"
BROKER = f"""# HELP {HANDLERS} idle
# TYPE {HANDLERS} counter
{HANDLERS} 5.0E8
{LEADERS} 10
process_start_time_seconds 900.0
process_cpu_seconds_total 1.5
jvm_gc_collection_seconds_sum{{gc="G1 Old Generation",}} 0.25
jvm_memory_used_bytes{{area="heap"}} 7
jvm_memory_bytes_used{{area="heap",}} 8
jvm_runtime_info{{runtime="OpenJDK",vendor="Debian",version="17.0.15"}} 1
kafka_server_brokertopicmetrics_messagesin_total 12
kafka_server_brokertopicmetrics_messagesin_total{{topic="other"}} 3
kafka_server_socket_server_metrics_listener_tls_networkprocessor_2_io_wait_time_ns_total 4
unrelated_metric{{a="b"}} NaN
"""


def test_lines_are_series_and_numbers() -> None:
    text = 'a 1\n# TYPE b gauge\nb{x="} {",y="q"} NaN 1395066363000\n\nc{x="1",}   2.5E3\nbroken\n'
    assert list(numbers_of(text)) == [
        ("a", "1"),
        ('b{x="} {",y="q"}', "NaN"),
        ('c{x="1",}', "2.5E3"),
    ]


def test_labels_are_unescaped() -> None:
    assert parse_series(r'm{path="C:\\DIR\n",quote="\""}') == (
        "m",
        {"path": "C:\\DIR\n", "quote": '"'},
    )
    assert parse_series('m{a="1",}') == ("m", {"a": "1"})
    assert parse_series("m") == ("m", {})


@pytest.mark.parametrize("text", ["", "1a", "m{a=1}", 'm{="1"}', 'm{a="1"', "m a"])
def test_what_is_no_series_is_none(text: str) -> None:
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
def test_a_series_is_the_reading_that_its_name_and_all_its_labels_say(
    series: str, reading: str | None
) -> None:
    match = RULES.match(series)
    assert (match and match.reading) == reading


@pytest.mark.parametrize("name", rule_names())
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
    ("text", "message"),
    [
        ("readings: {mesages_in: a}", "maps mesages_in, which is no reading; expected one of"),
        ("readings: {messages_in: 'a b'}", "expected a series such as name"),
        ("readings: {messages_in: {metric: a}}", "expected a series, or a map with series"),
        ("readings: {messages_in: {series: a, factor: x}}", "a number as factor"),
        ("rules: []", "expected the one key readings"),
    ],
)
def test_a_wrong_rule_set_says_what_to_do(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_rules(str(path))


def test_an_unknown_rule_set_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match="the nearest is strimzi"):
        load_rules("strimsi")
    with pytest.raises(ConfigError, match=r"none\.yaml does not exist"):
        load_rules("none.yaml")


class Exporter:
    """An exporter on loopback whose answers the test decides."""

    def __init__(self, text: str = BROKER) -> None:
        self.text = text
        self.status = 200
        self.delay = threading.Event()
        self.delay.set()
        self.knows_filter = True
        self.hangs_up = False
        self.paths: list[str] = []
        self.connections: set[int] = set()
        self.port = 0

    def answer(self, path: str) -> str:
        names = parse_qs(urlsplit(path).query).get("name[]")
        if not names or not self.knows_filter:
            return self.text if self.knows_filter or not names else ""
        kept = (line for line in self.text.split("\n") if line.startswith(tuple(names)))
        return "\n".join(kept) + "\n"


@contextmanager
def serving(exporter: Exporter) -> Iterator[Exporter]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            exporter.delay.wait(10)
            exporter.paths.append(self.path)
            exporter.connections.add(self.client_address[1])
            body = exporter.answer(self.path).encode()
            self.send_response(exporter.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = exporter.hangs_up

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", exporter.port), Handler)
    server.daemon_threads = True
    exporter.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield exporter
    finally:
        exporter.delay.set()
        server.shutdown()
        server.server_close()
        thread.join()


def source_of(*exporters: Exporter, rules: RuleSet | None = None) -> PrometheusSource:
    endpoints = [Endpoint(i, "127.0.0.1", e.port) for i, e in enumerate(exporters, 1)]
    known = rules or load_rules("kafka-kraft")
    return PrometheusSource(endpoints, known, 0.3, "4.1", clock=lambda: 1000.0)


def test_a_broker_is_read_by_our_names_and_units() -> None:
    with serving(Exporter()) as exporter, closing(source_of(exporter)) as source:
        source.open()
        (sample,) = source.sample_all()
    assert (sample.broker_id, sample.at_s, sample.error) == (1, 1000.0, None)
    assert sample.values == {
        "handler_idle_ns": 5e8,
        "leader_partitions": 10,
        "uptime_ms": 100_000,
        "process_cpu_ns": 1.5e9,
        "gc_ms:G1 Old Generation": 250,
        "heap_used_bytes": 7,
        "messages_in": 12,
        "network_wait_ns:tls/2": 4,
    }
    node = source.nodes[1]
    assert (node.version, node.roles) == ("4.1", frozenset({Role.BROKER}))
    assert node.facts == {"jvm.name": "OpenJDK", "jvm.vendor": "Debian", "jvm.version": "17.0.15"}
    assert "produce_local_ms_mean" in node.lacks
    assert "handler_idle_ns" not in node.lacks


def test_only_what_is_needed_is_asked_for_on_one_connection() -> None:
    with serving(Exporter()) as exporter, closing(source_of(exporter)) as source:
        source.open()
        for _ in range(3):
            assert source.sample_all()[0].error is None
    assert exporter.paths[0] == "/metrics"
    assert all("name%5B%5D=" in path for path in exporter.paths[1:])
    assert "unrelated" not in exporter.paths[-1]
    assert len(exporter.connections) == 1


def test_a_connection_that_the_exporter_ended_meanwhile_costs_no_sample() -> None:
    with serving(Exporter()) as exporter, closing(source_of(exporter)) as source:
        source.open()
        exporter.hangs_up = True
        assert [source.sample_all()[0].error for _ in range(3)] == [None, None, None]
    assert len(exporter.connections) > 1


def test_an_exporter_that_filters_otherwise_is_asked_for_everything() -> None:
    deaf = Exporter()
    deaf.knows_filter = False
    with serving(deaf) as exporter, closing(source_of(exporter)) as source:
        source.open()
        assert source.sample_all()[0].values["leader_partitions"] == 10
    assert exporter.paths[-1] == "/metrics"


def test_the_brokers_own_handlers_are_preferred() -> None:
    both = BROKER + f"{OWN_HANDLERS}_total 7.0\n{CONTROLLER} 0\n"
    with serving(Exporter(both)) as exporter, closing(source_of(exporter)) as source:
        source.open()
        assert source.nodes[1].roles == frozenset({Role.BROKER, Role.CONTROLLER})
        assert source.sample_all()[0].values["handler_idle_ns"] == 7.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BROKER + f"{CONTROLLER} 1\n", "broker and controller in one process"),
        (BROKER.replace(HANDLERS, "other"), r"conf/prometheus/kafka-kraft\.yaml maps as handler"),
        ("", r"metrics\.client_only: true"),
    ],
)
def test_a_broker_that_cannot_be_judged_is_refused(text: str, message: str) -> None:
    with (
        serving(Exporter(text)) as exporter,
        closing(source_of(exporter)) as source,
        pytest.raises(ConfigError, match=message),
    ):
        source.open()


def test_another_node_is_refused() -> None:
    text = 'kafka_server_app_info_StartTimeMs{id="7"} 1\n'
    with (
        serving(Exporter(text)) as exporter,
        closing(source_of(exporter, rules=load_rules("msk"))) as source,
        pytest.raises(ConfigError, match="answers as node 7, expected node 1"),
    ):
        source.open()


def test_nobody_there_is_a_configuration_error() -> None:
    with serving(Exporter()) as gone:
        pass
    with (
        closing(source_of(gone)) as source,
        pytest.raises(ConfigError, match=r"shows no metrics at http://127.*Refused"),
    ):
        source.open()


def test_one_that_hangs_is_missed_and_does_not_hold_up_the_others() -> None:
    with (
        serving(Exporter()) as well,
        serving(Exporter()) as hung,
        closing(source_of(well, hung)) as source,
    ):
        source.open()
        hung.delay.clear()
        began_s = time.monotonic()
        good, missed = source.sample_all()
        assert time.monotonic() - began_s < 2
        assert good.error is None
        assert missed.error is not None
        assert missed.values == {}
        hung.delay.set()
        assert recovered(source.sample_all)


def test_one_that_went_and_came_back_is_sampled_again() -> None:
    exporter = Exporter()
    with serving(exporter):
        source = source_of(exporter)
        source.open()
        exporter.status = 503
        (refused,) = source.sample_all()
        assert "HTTP 503" in (refused.error or "")
    exporter.status = 200
    with closing(source):
        assert source.sample_all()[0].error is not None
        with serving(exporter):
            assert recovered(source.sample_all)


def recovered(sample_all: Callable[[], list[BrokerSample]]) -> bool:
    """Samples until all nodes answer; each try takes as long as the nodes do."""
    end_s = time.monotonic() + 10
    while time.monotonic() < end_s:
        if all(sample.error is None for sample in sample_all()):
            return True
    return False


def test_a_closed_source_is_not_sampled() -> None:
    source = source_of(Exporter())
    source.close()
    with pytest.raises(RuntimeError, match="not open"):
        source.sample_all()


def test_what_is_missing_is_told_with_what_it_means() -> None:
    with serving(Exporter()) as exporter, closing(source_of(exporter)) as source:
        source.open()
    told = shortcomings(source.nodes, 60.0)
    assert not is_blind(source.nodes)
    assert CLIENT_ONLY not in told
    assert any("request times" in sentence and "cannot be told" in sentence for sentence in told)
    assert not any("led partitions" in sentence for sentence in told)


def test_an_exporter_that_costs_the_broker_much_is_told() -> None:
    node = NodeInfo(1, "4.1", frozenset({Role.BROKER}), poll_s=0.6)
    assert shortcomings({1: node}, 60.0) == ()
    (sentence,) = shortcomings({1: node}, 1.0)
    assert "takes up to 0.60 s" in sentence
    assert "sample_interval_s" in sentence
