"""Exporters whose series are found on their pages, and pages that are not a broker's."""

from __future__ import annotations

import socketserver
import threading
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.checks.cluster import metrics_rules
from jobs.checks.finding import Severity
from jobs.config.metrics_registry import Prometheus, SourceTarget
from jobs.testbed.places import free_ports
from metrics.common.errors import ConfigError
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.shortcomings import shortcomings
from metrics.sources.source import Endpoint, NodeInfo
from tests.support.exporter_pages import BrokerState, page
from tests.support.processes import PATIENCE_S
from tests.support.served_exporter import BROKER, HANDLERS, Exporter, serving

ROOT = Path(__file__).parents[1]
REST = BrokerState()
POOL = HANDLERS.removesuffix("_count")
PORT = "PORT"


class Broker(Exporter):
    """An exporter of a broker at rest under some rules; each poll is a second later."""

    def __init__(self, rules: str, release: int = 0, **options: Any) -> None:
        super().__init__()
        self.rules, self.options, self.state = rules, {"release": release, **options}, REST

    def answer(self, path: str) -> str:
        self.state = self.state.later()
        self.text = page(self.rules, self.state, **self.options)
        return super().answer(path)


class Raw(Exporter):
    """A process that answers with these bytes, whatever is requested."""

    def __init__(self, content: bytes | str) -> None:
        super().__init__()
        self.content = content.encode() if isinstance(content, str) else content

    def body(self, path: str) -> bytes:
        return self.content


def _never() -> NoReturn:
    raise AssertionError("exporters need no other connection")


def source_of(exporter: Exporter) -> PrometheusSource:
    """A source whose clock follows the broker."""

    def clock() -> float:
        return exporter.state.at_s if isinstance(exporter, Broker) else 1_000.0

    endpoint = Endpoint(1, "127.0.0.1", exporter.port)
    return PrometheusSource([endpoint], None, PATIENCE_S, "4.1", clock, pause=lambda _: None)


def opened(exporter: Exporter) -> tuple[NodeInfo, list[dict[str, float]]]:
    """The node of an exporter, and two samples of it."""
    with serving(exporter), closing(source_of(exporter)) as source:
        source.open()
        samples = [source.sample_all()[0] for _ in range(2)]
    assert [each.error for each in samples] == [None, None]
    return source.nodes[1], [dict(each.values) for each in samples]


def refusal(exporter: Exporter) -> str:
    """The sentence by which an exporter is refused, with its port replaced."""
    with serving(exporter):
        return refusal_of(exporter)


def refusal_of(exporter: Exporter) -> str:
    """The sentence by which what answers at an exporter's address is refused."""
    with closing(source_of(exporter)) as source, pytest.raises(ConfigError) as error:
        source.open()
    return str(error.value).replace(str(exporter.port), PORT)


@pytest.mark.parametrize("release", [0, 1])
@pytest.mark.parametrize(
    "rules", ["none", "lower case", "kafka-kraft-3_0_0", "kafka-2_0_0", "strimzi", "confluent"]
)
def test_idle_and_bytes_are_read_whatever_the_rules(rules: str, release: int) -> None:
    node, (first, last) = opened(Broker(rules, release))
    assert (last["handler_idle_ns"] - first["handler_idle_ns"]) / 1e9 == pytest.approx(0.98)
    assert last["bytes_in"] == REST.messages * 1_071
    assert last["messages_in"] == REST.messages
    assert last["produce_local_ms_count"] == REST.messages // 17 + len("LocalTimeMs")
    assert set(node.series) >= {"handler_idle_ns", "bytes_in", "uptime_ms"}
    assert not node.refused


def test_without_rules_in_the_file_the_series_are_found_and_named_rules_win() -> None:
    def started(**keys: str) -> NodeInfo:
        section = Prometheus.model_validate({"endpoints": {1: f"127.0.0.1:{port}"}, **keys})
        with closing(section.open(target)) as source:
            return source.nodes[1]

    target = SourceTarget({1: "127.0.0.1"}, "4.1", _never, _never)
    with serving(Exporter()) as exporter:
        port = exporter.port
        assert started().series["handler_idle_ns"] == HANDLERS
        assert started(rules="auto").series["handler_idle_ns"] == HANDLERS
        assert not started(rules="kafka-kraft").series
        with pytest.raises(ConfigError, match=r"a name that .*msk\.yaml maps"):
            started(rules="msk")


def test_the_meter_of_both_pools_does_not_replace_the_brokers_own() -> None:
    own = HANDLERS.replace("requesthandleravg", "brokerrequesthandleravg")
    shared = f"{BROKER}{own} 4.0E8\n"
    _, samples = opened(Exporter(shared))
    assert samples[0]["handler_idle_ns"] == 4e8
    assert own in refusal(Exporter(f"{shared}{own} 3.0E8\n"))
    assert own in refusal(Exporter(shared.replace("4.0E8", "0.97")))
    node, _ = opened(Broker("none", version="4.2"))
    assert "BrokerRequestHandlerAvgIdlePercent" in node.series["broker_handler_idle_ns"]
    # Sums become means.
    local = 'kafka_network_requestmetrics_localtimems_{}{{request="Produce"}} {}\n'
    text = BROKER + local.format("count", 8) + local.format("sum", 20)
    node, samples = opened(Exporter(text))
    assert samples[0]["produce_local_ms_mean"] == 2.5
    assert "produce_local_ms_sum" not in samples[0]
    assert "produce_local_ms_mean" not in node.lacks


def test_a_page_that_is_wrong_later_is_a_missed_reading_or_sample() -> None:
    exporter = Raw(BROKER)
    with serving(exporter), closing(source_of(exporter)) as source:
        source.open()
        assert source.sample_all()[0].error is None
        exporter.content = f"{BROKER}{HANDLERS} 7\n".encode()
        assert "handler_idle_ns" not in source.sample_all()[0].values
        exporter.content = BROKER[:-40].encode()
        assert "cut off" in (source.sample_all()[0].error or "")


def test_refused_readings_are_a_caveat_and_choices_are_findings(
    snapshot: SnapshotAssertion,
) -> None:
    bytes_in = "kafka_server_brokertopicmetrics_bytesin"
    node, _ = opened(Exporter(f"{BROKER}{bytes_in}_total 70\n{bytes_in}persec_total 7\n"))
    (sentence,) = [each for each in shortcomings({1: node}, 60.0) if "bytes_in" in each]
    assert sentence == snapshot
    node, _ = opened(Broker("confluent"))
    found = metrics_rules("prometheus", {1: node}, [], 60.0)
    rows = {each.check: each for each in found if each.check.startswith("reading ")}
    assert rows["reading handler_idle_ns"].found == POOL
    assert rows["reading produce_…_ms_count"].found.endswith('{request="Produce"} and 6 like it')
    assert {each.severity for each in rows.values()} == {Severity.OK}
    (choice,) = [each.found for each in found if each.check == "choice of series"]
    assert choice == snapshot


def test_of_missing_readings_doctor_says_what_follows_and_what_to_export(
    snapshot: SnapshotAssertion,
) -> None:
    alone = Broker("confluent", agent=False)
    node, _ = opened(alone)
    found = metrics_rules("prometheus", {1: node}, [], 60.0)
    sentences = [each.sentence for each in found if each.severity is Severity.WARNING]
    assert sentences == snapshot
    by_jmx = NodeInfo(1, "4.1", node.roles, lacks=node.lacks)
    found = metrics_rules("jmx", {1: by_jmx}, [], 60.0)
    assert not [each for each in found if each.remedy]


def test_brokers_with_different_rules_have_their_own_series() -> None:
    nodes = {}
    for number, rules in enumerate(("none", "strimzi"), 1):
        nodes[number], _ = opened(Broker(rules))
    nodes[2] = NodeInfo(2, "4.1", nodes[2].roles, series=nodes[2].series)
    found = metrics_rules("prometheus", nodes, [], 60.0)
    (idle,) = [each.found for each in found if each.check == "reading handler_idle_ns"]
    assert "(broker 1)" in idle and "(broker 2)" in idle


WRONG = {each.name: each.read_bytes() for each in (ROOT / "data/exporter/wrong").iterdir()}
"""Pages that are not those of a broker, and of brokers without the idle time of the handlers."""


@pytest.mark.parametrize("wrong", sorted(WRONG))
def test_a_wrong_page_is_refused_with_a_sentence(wrong: str, snapshot: SnapshotAssertion) -> None:
    assert refusal(Raw(WRONG[wrong])) == snapshot


HTTP, EMPTY = b"HTTP/1.1 ", b"Content-Length: 0\r\n\r\n"
ANSWERS = {
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "no answer": b"",
    "cut off by length": HTTP + b"200 OK\r\nContent-Length: 500\r\n\r\nkafka_x 1\n",
    "cut off in a chunk": HTTP + b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nkafka_x 1\n",
    "redirection": HTTP + b"302 Found\r\nLocation: https://login.example.com/?token=1\r\n" + EMPTY,
    "no such page": HTTP + b"404 Not Found\r\n" + EMPTY,
}
"""What processes answer on a port, after a request."""


def test_a_port_that_answers_otherwise_or_not_is_refused_with_a_sentence(
    snapshot: SnapshotAssertion,
) -> None:
    class Process(socketserver.BaseRequestHandler):
        answer = b""

        def handle(self) -> None:
            self.request.recv(4_096)
            self.request.sendall(self.answer)

    exporter, sentences = Exporter(), dict[str, str]()
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Process) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        exporter.port = server.server_address[1]
        for name, Process.answer in ANSWERS.items():
            sentences[name] = refusal_of(exporter)
        server.shutdown()
    (exporter.port,) = free_ports(1)
    sentences["no process"] = refusal_of(exporter)
    gone = Raw(WRONG["HTML-of-a-proxy"])
    gone.status = 502
    sentences["an error of a proxy"] = refusal(gone)
    assert sentences == snapshot
