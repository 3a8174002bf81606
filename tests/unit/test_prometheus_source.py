"""Sampling brokers by their Prometheus exporters, and exporters that fail."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.config.exporter_rules import load_rules
from metrics.common.errors import ConfigError
from metrics.sources.beans import CONTROLLER_EPOCH, FROM_FIRST_USE, Role, beans_for, readings_of
from metrics.sources.first_polls import take_first_polls
from metrics.sources.hosts.node_exporter import NodeExporters
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.rules import RuleSet, rule_set
from metrics.sources.sample import BrokerSample
from metrics.sources.scrapers import SCRAPES_IN_PARALLEL
from metrics.sources.shortcomings import CLIENT_ONLY, is_blind, shortcomings
from metrics.sources.source import Endpoint, NodeInfo
from tests.support.processes import PATIENCE_S
from tests.support.served_exporter import BROKER, HANDLERS, LEADERS, Exporter, serving
from tests.support.simulated_exporters import fetch_counts, simulated_exporters

OWN_HANDLERS = "kafka_server_kafkarequesthandlerpool_brokerrequesthandleravgidlepercent_count"
EPOCH = "kafka_server_raft_metrics_current_epoch"
CONTROLLER = "kafka_controller_kafkacontroller_activecontrollercount"


def source_of(*exporters: Exporter, rules: RuleSet | None = None) -> PrometheusSource:
    endpoints = [Endpoint(i, "127.0.0.1", e.port) for i, e in enumerate(exporters, 1)]
    known = rules or load_rules("kafka-kraft")
    return PrometheusSource(endpoints, known, PATIENCE_S, "4.1", clock=lambda: 1000.0)


def test_a_broker_is_read_by_the_projects_names_and_units() -> None:
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


def test_only_needed_series_are_requested_over_one_connection() -> None:
    with serving(Exporter()) as exporter, closing(source_of(exporter)) as source:
        source.open()
        for _ in range(3):
            assert source.sample_all()[0].error is None
    assert exporter.paths[0] == "/metrics"
    assert all("name%5B%5D=" in path for path in exporter.paths[1:])
    assert "unrelated" not in exporter.paths[-1]
    assert len(exporter.connections) == 1


def test_a_bean_that_is_registered_at_its_first_use_is_read_from_then_on() -> None:
    flushes = "kafka_log_logflushstats_logflushrateandtimems_count"
    with serving(Exporter()) as exporter, closing(source_of(exporter)) as source:
        source.open()
        assert "log_flush_ms_count" not in source.nodes[1].lacks
        assert "log_flush_ms_mean" in source.nodes[1].lacks, "these rules export no means"
        assert "log_flush_ms_count" not in source.sample_all()[0].values
        for name in (flushes, f"{flushes}_total"):
            exporter.text = f"{BROKER}{name} 5\n"
            assert source.sample_all()[0].values["log_flush_ms_count"] == 5
    assert "name%5B%5D=" in exporter.paths[-1]


def test_a_connection_that_the_exporter_ended_meanwhile_costs_no_sample() -> None:
    with serving(Exporter()) as exporter, closing(source_of(exporter)) as source:
        source.open()
        exporter.hangs_up = True
        assert [source.sample_all()[0].error for _ in range(3)] == [None, None, None]
    assert len(exporter.connections) > 1


def test_an_exporter_with_another_filter_is_requested_for_everything() -> None:
    deaf = Exporter()
    deaf.knows_filter = False
    with serving(deaf) as exporter, closing(source_of(exporter)) as source:
        source.open()
        assert source.sample_all()[0].values["leader_partitions"] == 10
    assert exporter.paths[-1] == "/metrics"


@pytest.mark.parametrize("named", [HANDLERS, f"{HANDLERS}_total"])
@pytest.mark.parametrize("is_first", [True, False])
def test_of_two_series_that_differ_in_total_the_one_that_the_rules_name_is_read(
    named: str, is_first: bool
) -> None:
    other = f"{HANDLERS}_total" if named == HANDLERS else HANDLERS
    lines = [f"{named} 5.0E8\n", f"{other} 0.98\n"]
    page = BROKER.replace(f"{HANDLERS} 5.0E8\n", "".join(lines if is_first else lines[::-1]))
    rules = rule_set("own", {"handler_idle_ns": named})
    with serving(Exporter(page)) as exporter, closing(source_of(exporter, rules=rules)) as source:
        source.open()
        assert source.sample_all()[0].values["handler_idle_ns"] == 5e8


def test_collections_that_a_page_shows_under_two_names_count_once() -> None:
    # Without rules the exporter shows the JVM's beans, and the agent adds series of its own.
    beans = {
        "G1_Young_Generation": 420,
        "G1_Old_Generation": 0,
    }
    rows = (
        f'java_lang_{name}_CollectionTime{{type="GarbageCollector"}} {ms}\n'
        f'jvm_gc_collection_seconds_sum{{gc="{name.replace("_", " ")}"}} {ms / 1000}\n'
        for name, ms in beans.items()
    )
    idle = 'kafka_server_KafkaRequestHandlerPool_Count{name="RequestHandlerAvgIdlePercent"} 5e8\n'
    page = idle + "".join(rows)
    rules = load_rules("msk")
    exporter = Exporter(page)
    with serving(exporter), closing(source_of(exporter, rules=rules)) as source:
        source.open()
        values = source.sample_all()[0].values
        assert {name: values[name] for name in values if name.startswith("gc_ms")} == {
            f"gc_ms:{name}": ms for name, ms in beans.items()
        }
        exporter.text = page.replace(" 420\n", " NaN\n").replace(" 0\n", " NaN\n")
        again = source.sample_all()[0].values
    assert again["gc_ms:G1 Young Generation"] == 420


def test_the_brokers_own_handlers_are_preferred() -> None:
    both = BROKER + f"{OWN_HANDLERS}_total 7.0\n{CONTROLLER} 0\n{EPOCH} 3\n"
    with serving(Exporter(both)) as exporter, closing(source_of(exporter)) as source:
        source.open()
        assert source.nodes[1].roles == frozenset({Role.BROKER, Role.CONTROLLER})
        assert source.sample_all()[0].values["handler_idle_ns"] == 7.0


def test_a_meter_that_a_controller_shares_is_separated_instead_of_refused() -> None:
    combined = BROKER + f"{CONTROLLER} 0\n{EPOCH} 3\n"
    with serving(Exporter(combined)) as exporter, closing(source_of(exporter)) as source:
        source.open()
        (sample,) = source.sample_all()
    assert sample.values["shared_handler_idle_ns"] == 5e8
    # 100 s of uptime are the controller's, of which a tenth may be its handlers' work.
    assert sample.values["handler_idle_ns"] == 5e8 - 100e9 + 5e9
    assert source.nodes[1].controller_share == pytest.approx(0.1)
    assert any("known to ±0.050" in each for each in shortcomings(source.nodes, 60.0))


def test_a_broker_with_zookeeper_has_a_meter_of_its_own() -> None:
    broker = BROKER + f"{CONTROLLER} 1\n"
    with serving(Exporter(broker)) as exporter, closing(source_of(exporter)) as source:
        source.open()
        assert source.sample_all()[0].values["handler_idle_ns"] == 5e8
    assert source.nodes[1].roles == frozenset({Role.BROKER})
    assert "fenced_brokers" not in source.nodes[1].lacks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BROKER.replace(HANDLERS, "other"), r"kafka-kraft\.yaml maps .*handler_idle_ns"),
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


def test_a_port_without_an_exporter_is_a_configuration_error() -> None:
    with serving(Exporter()) as gone:
        pass
    with (
        closing(source_of(gone)) as source,
        pytest.raises(ConfigError, match=r"shows no metrics at http://127.*connection refused"),
    ):
        source.open()


def test_a_hanging_exporter_is_missed_and_does_not_delay_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The round begins and waits for the healthy exporter; then the time of the other is up.
    looks_s = iter([0.0, 0.0, PATIENCE_S])
    clock = SimpleNamespace(monotonic=lambda: next(looks_s))
    with (
        serving(Exporter()) as well,
        serving(Exporter()) as hung,
        closing(source_of(well, hung)) as source,
    ):
        source.open()
        hung.delay.clear()
        with monkeypatch.context() as patched:
            patched.setattr("metrics.sources.scrapers.time", clock)
            good, missed = source.sample_all()
        assert good.error is None
        assert missed.error is not None
        assert missed.values == {}
        hung.delay.set()
        assert recovered(source.sample_all)


def named(node: int, idle_ns: float) -> str:
    """The page of a broker that shows its node id."""
    idle = 'kafka_server_KafkaRequestHandlerPool_Count{name="RequestHandlerAvgIdlePercent"}'
    return f'kafka_server_app_info_StartTimeMs{{id="{node}"}} 1.0\n{idle} {idle_ns!r}\n'


def test_another_node_at_the_same_address_is_no_sample() -> None:
    with (
        serving(Exporter(named(1, 5e8))) as exporter,
        closing(source_of(exporter, rules=load_rules("msk"))) as source,
    ):
        source.open()
        errors = []
        for page in (named(1, 6e8), named(2, 7e8), named(1, 8e8)):
            exporter.text = page
            errors.append(source.sample_all()[0].error)
    assert errors == [None, "node 2 answers at the address of node 1", None]


class Balanced(Exporter):
    """An address that leads to the next of some processes at each connection."""

    def __init__(self, *idle_ns: float) -> None:
        super().__init__()
        self._idle_ns = idle_ns

    def answer(self, path: str) -> str:
        self.text = BROKER.replace(" 5.0E8\n", f" {self._chosen()!r}\n")
        return super().answer(path)

    def _chosen(self) -> float:
        return self._idle_ns[(len(self.connections) - 1) % len(self._idle_ns)]


def test_an_address_of_several_processes_is_refused_before_a_load() -> None:
    with (
        serving(Balanced(9e8, 5e8, 7e8)) as exporter,
        closing(source_of(exporter)) as source,
    ):
        source.open()
        with pytest.raises(ConfigError, match=r"several processes answer for broker 1: .* fell"):
            take_first_polls(source)


def test_two_addresses_of_one_process_are_refused_before_a_load() -> None:
    with (
        serving(Exporter()) as one,
        serving(Exporter()) as other,
        closing(source_of(one, other)) as source,
    ):
        source.open()
        with pytest.raises(ConfigError, match=r"brokers 1, 2 show the same figures in 3 polls"):
            take_first_polls(source)
        other.text = BROKER.replace(" 5.0E8\n", " 5.1E8\n")
        assert len(take_first_polls(source).rounds) == 3


def test_an_exporter_that_restarted_is_sampled_again() -> None:
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
    """Sample until all nodes answer, and return whether they do; the nodes set the pace."""
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        if all(sample.error is None for sample in sample_all()):
            return True
    return False


def test_a_closed_source_is_not_sampled() -> None:
    source = source_of(Exporter())
    source.close()
    with pytest.raises(RuntimeError, match="not open"):
        source.sample_all()


def test_missing_readings_are_reported_with_their_meaning(snapshot: SnapshotAssertion) -> None:
    with serving(Exporter()) as exporter, closing(source_of(exporter)) as source:
        source.open()
    sentences = shortcomings(source.nodes, 60.0)
    assert not is_blind(source.nodes)
    assert CLIENT_ONLY not in sentences
    assert any("request times" in sentence for sentence in sentences)
    assert not any("led partitions" in sentence for sentence in sentences)
    assert sentences == snapshot


def test_the_lack_of_any_reading_has_a_meaning() -> None:
    roles = (Role.BROKER, Role.CONTROLLER)
    names = {each.name for each in readings_of(beans_for("4.2", roles))}
    silent = {
        name
        for name in names
        if not shortcomings({1: NodeInfo(1, "4.2", frozenset(roles), lacks=(name,))}, 60.0)
    }
    # A lack of the epoch means ZooKeeper, which the source reports by another sentence.
    assert silent == {CONTROLLER_EPOCH, *FROM_FIRST_USE} - {"log_flush_ms_mean"}


def test_an_exporter_that_takes_much_of_the_brokers_cpu_is_reported() -> None:
    node = NodeInfo(1, "4.1", frozenset({Role.BROKER}), poll_s=0.6)
    assert shortcomings({1: node}, 60.0) == ()
    (sentence,) = shortcomings({1: node}, 1.0)
    assert "takes up to 0.60 s" in sentence
    assert "sample_interval_s" in sentence


def test_readings_are_found_again_when_series_come_go_and_change_places() -> None:
    first, moved = f"{HANDLERS} 1.0\nother 5\n{LEADERS} 10\n", f"{LEADERS} 4\n{HANDLERS} 2.0\n"
    with serving(Exporter(first)) as exporter, closing(source_of(exporter)) as source:
        source.open()
        exporter.knows_filter = True
        seen = []
        for page in (first, moved + "other 5\n", moved, f"{moved}# a comment\n\n", first):
            exporter.text = page
            (sample,) = source.sample_all()
            seen.append((sample.values["handler_idle_ns"], sample.values["leader_partitions"]))
    assert seen == [(1.0, 10), (2.0, 4), (2.0, 4), (2.0, 4), (1.0, 10)]


def test_many_hanging_exporters_do_not_delay_the_others() -> None:
    hung = Exporter()

    class Releasing(Exporter):
        """An exporter that ends the hang of the others when it gets a request."""

        def answer(self, path: str) -> str:
            hung.delay.set()
            return super().answer(path)

    with serving(hung), serving(Releasing()) as well:
        ports = [hung.port] * (SCRAPES_IN_PARALLEL + 1) + [well.port] * 3
        endpoints = [Endpoint(i, "127.0.0.1", port) for i, port in enumerate(ports, 1)]
        with closing(PrometheusSource(endpoints, load_rules("kafka-kraft"), 60.0)) as source:
            source.open()
            hung.delay.clear()
            assert [each.error for each in source.sample_all()] == [None] * len(ports)


def test_hundreds_of_brokers_and_hosts_are_each_sampled_once_a_round_by_one_request() -> None:
    count = 200
    with simulated_exporters(count, count) as (brokers, hosts):
        endpoints = [Endpoint(i, "127.0.0.1", port) for i, port in enumerate(brokers, 1)]
        addresses = {i: f"127.0.0.1:{port}" for i, port in enumerate(hosts, 1)}
        with (
            closing(PrometheusSource(endpoints, load_rules("kafka-kraft"), PATIENCE_S)) as source,
            closing(NodeExporters(addresses, PATIENCE_S)) as machines,
        ):
            source.open()
            machines.open()
            before = fetch_counts(brokers[0])
            rounds = [source.sample_all() for _ in range(2)]
            looks = machines.sample_all()
            after = fetch_counts(brokers[0])
    assert {kind: after[kind] - before[kind] for kind in after} == {
        "broker": 2 * count,
        "host": count,
        "connections": 1,  # the connection of this request
    }
    for samples in rounds:
        assert [(each.broker_id, each.error) for each in samples] == [
            (i, None) for i in range(1, count + 1)
        ]
    names = {frozenset(each.values) for samples in rounds for each in samples}
    assert [len(each) for each in names] == [60], "every broker shows the same readings"
    assert [each.error for each in looks] == [None] * count
    assert {each.values["cores"] for each in looks} == {16.0}
    for one, other in zip(*rounds, strict=True):
        idle_ns = other.values["handler_idle_ns"] - one.values["handler_idle_ns"]
        assert idle_ns >= 0, "counters grow"
