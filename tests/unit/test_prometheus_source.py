"""Sampling brokers by their Prometheus exporters, and exporters that fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from itertools import permutations
from types import SimpleNamespace

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.config.metrics_registry import load_rules
from metrics.common.errors import ConfigError
from metrics.sources.beans import CONTROLLER_EPOCH, FROM_FIRST_USE, Role, beans_for, readings_of
from metrics.sources.first_polls import take_first_polls
from metrics.sources.hosts.node_exporter import NodeExporters
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.rules import RuleSet, rule_set
from metrics.sources.sample import BrokerSample
from metrics.sources.scraper import SCRAPES_IN_PARALLEL
from metrics.sources.shortcomings import CLIENT_ONLY, is_blind, shortcomings
from metrics.sources.source import Endpoint, NodeInfo
from tests.support.processes import PATIENCE_S
from tests.support.served_exporter import BROKER, HANDLERS, LEADERS, Exporter, serving
from tests.support.simulated_exporters import fetch_counts, simulated_exporters

OWN_HANDLERS = "kafka_server_kafkarequesthandlerpool_brokerrequesthandleravgidlepercent_count"
EPOCH = "kafka_server_raft_metrics_current_epoch"
CONTROLLER = "kafka_controller_kafkacontroller_activecontrollercount"
NODE_ID = "kafka_server_app_info_StartTimeMs"
IDLE_OF_MSK = 'kafka_server_KafkaRequestHandlerPool_Count{name="RequestHandlerAvgIdlePercent"}'


@contextmanager
def opened(*exporters: Exporter, rules: RuleSet | None = None) -> Iterator[PrometheusSource]:
    """The source of exporters that are served."""
    with ExitStack() as stack:
        for exporter in exporters:
            stack.enter_context(serving(exporter))
        endpoints = [Endpoint(i, "127.0.0.1", e.port) for i, e in enumerate(exporters, 1)]
        known = rules or load_rules("kafka-kraft")
        source = PrometheusSource(endpoints, known, PATIENCE_S, "4.1", clock=lambda: 1000.0)
        with closing(source):
            source.open()
            yield source
    with pytest.raises(RuntimeError, match="not open"):
        source.sample_all()


def values_of(source: PrometheusSource) -> Mapping[str, float]:
    """The readings of the only broker."""
    (sample,) = source.sample_all()
    assert sample.error is None
    return sample.values


def test_a_broker_is_read_by_the_projects_names_over_one_connection() -> None:
    exporter = Exporter()
    with opened(exporter) as source:
        for _ in range(3):
            (sample,) = source.sample_all()
        node = source.nodes[1]
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
    assert (node.version, node.roles) == ("4.1", frozenset({Role.BROKER}))
    assert node.facts == {"jvm.name": "OpenJDK", "jvm.vendor": "Debian", "jvm.version": "17.0.15"}
    assert "produce_local_ms_mean" in node.lacks
    assert "handler_idle_ns" not in node.lacks
    assert exporter.paths[0] == "/metrics"
    assert all("name%5B%5D=" in path for path in exporter.paths[1:])
    assert "unrelated" not in exporter.paths[-1]
    assert len(exporter.connections) == 1
    exporter.knows_filter = False
    with opened(exporter) as source:
        assert values_of(source)["leader_partitions"] == 10
    assert exporter.paths[-1] == "/metrics", "of another filter, everything is requested"


def test_a_bean_that_is_registered_at_its_first_use_is_read_from_then_on() -> None:
    flushes, exporter = "kafka_log_logflushstats_logflushrateandtimems_count", Exporter()
    with opened(exporter) as source:
        assert "log_flush_ms_count" not in source.nodes[1].lacks
        assert "log_flush_ms_mean" in source.nodes[1].lacks, "these rules export no means"
        assert "log_flush_ms_count" not in values_of(source)
        for name in (flushes, f"{flushes}_total"):
            exporter.text = f"{BROKER}{name} 5\n"
            assert values_of(source)["log_flush_ms_count"] == 5


def test_of_two_series_that_differ_in_total_the_one_that_the_rules_name_is_read() -> None:
    for named, other in permutations((HANDLERS, f"{HANDLERS}_total")):
        for lines in permutations((f"{named} 5.0E8\n", f"{other} 0.98\n")):
            page = BROKER.replace(f"{HANDLERS} 5.0E8\n", "".join(lines))
            rules = rule_set("own", {"handler_idle_ns": named})
            with opened(Exporter(page), rules=rules) as source:
                assert values_of(source)["handler_idle_ns"] == 5e8


def test_collections_that_a_page_shows_under_two_names_count_once() -> None:
    # Without rules the exporter shows the JVM's beans, and the agent adds series of its own.
    beans = {"G1_Young_Generation": 420, "G1_Old_Generation": 0}
    rows = (
        f'java_lang_{name}_CollectionTime{{type="GarbageCollector"}} {ms}\n'
        f'jvm_gc_collection_seconds_sum{{gc="{name.replace("_", " ")}"}} {ms / 1000}\n'
        for name, ms in beans.items()
    )
    exporter = Exporter(f"{IDLE_OF_MSK} 5e8\n{''.join(rows)}")
    with opened(exporter, rules=load_rules("msk")) as source:
        values = values_of(source)
        assert {name: values[name] for name in values if name.startswith("gc_ms")} == {
            f"gc_ms:{name}": ms for name, ms in beans.items()
        }
        exporter.text = exporter.text.replace(" 420\n", " NaN\n").replace(" 0\n", " NaN\n")
        assert values_of(source)["gc_ms:G1 Young Generation"] == 420


def test_the_handlers_are_read_by_the_roles_of_the_node() -> None:
    combined = f"{BROKER}{CONTROLLER} 0\n{EPOCH} 3\n"
    with opened(Exporter(f"{combined}{OWN_HANDLERS}_total 7.0\n")) as source:
        assert source.nodes[1].roles == frozenset({Role.BROKER, Role.CONTROLLER})
        assert values_of(source)["handler_idle_ns"] == 7.0, "the broker's own are preferred"
    with opened(Exporter(combined)) as source:
        values, nodes = values_of(source), source.nodes
    assert values["shared_handler_idle_ns"] == 5e8
    # 100 s of uptime are the controller's, of which a tenth may be its handlers' work.
    assert values["handler_idle_ns"] == 5e8 - 100e9 + 5e9
    assert nodes[1].controller_share == pytest.approx(0.1)
    assert any("known to ±0.050" in each for each in shortcomings(nodes, 60.0))
    with opened(Exporter(f"{BROKER}{CONTROLLER} 1\n")) as source:
        values, node = values_of(source), source.nodes[1]
    assert values["handler_idle_ns"] == 5e8, "with ZooKeeper a broker has a meter of its own"
    assert node.roles == frozenset({Role.BROKER})
    assert "fenced_brokers" not in node.lacks


def test_a_broker_that_cannot_be_judged_is_refused() -> None:
    for text, rules, message in (
        (BROKER.replace(HANDLERS, "other"), "kafka-kraft", r"-kraft\.yaml maps .*handler_idle_ns"),
        ("", "kafka-kraft", r"metrics\.client_only: true"),
        (f'{NODE_ID}{{id="7"}} 1\n', "msk", "answers as node 7, expected node 1"),
    ):
        refused = pytest.raises(ConfigError, match=message)
        with refused, opened(Exporter(text), rules=load_rules(rules)):
            pass


def test_a_hanging_exporter_is_missed_and_does_not_delay_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The round begins and waits for the healthy exporter; then the time of the other is up.
    looks_s = iter([0.0, 0.0, PATIENCE_S])
    clock = SimpleNamespace(monotonic=lambda: next(looks_s))
    well, hung = Exporter(), Exporter()
    with opened(well, hung) as source:
        hung.delay.clear()
        with monkeypatch.context() as patched:
            patched.setattr("metrics.sources.scraper.time", clock)
            good, missed = source.sample_all()
        assert good.error is None
        assert missed.error is not None
        assert missed.values == {}
        hung.delay.set()
        assert recovered(source.sample_all)


def test_another_node_at_the_same_address_is_no_sample() -> None:
    pages = [
        f'{NODE_ID}{{id="{node}"}} 1.0\n{IDLE_OF_MSK} {idle_ns!r}\n'
        for node, idle_ns in ((1, 5e8), (1, 6e8), (2, 7e8), (1, 8e8))
    ]
    exporter, errors = Exporter(pages[0]), []
    with opened(exporter, rules=load_rules("msk")) as source:
        for exporter.text in pages[1:]:
            errors.append(source.sample_all()[0].error)
    assert errors == [None, "node 2 answers at the address of node 1", None]


class Balanced(Exporter):
    """An address that leads to the next of some processes at each connection."""

    def answer(self, path: str) -> str:
        idle_ns = (9e8, 5e8, 7e8)[(len(self.connections) - 1) % 3]
        self.text = BROKER.replace(" 5.0E8\n", f" {idle_ns!r}\n")
        return super().answer(path)


def test_addresses_and_processes_that_do_not_agree_are_refused_before_a_load() -> None:
    several = r"several processes answer for broker 1: .* fell"
    with opened(Balanced()) as source, pytest.raises(ConfigError, match=several):
        take_first_polls(source)
    one, other = Exporter(), Exporter()
    with opened(one, other) as source:
        with pytest.raises(
            ConfigError, match=r"brokers 1, 2 show the same figures in 3 successive polls"
        ):
            take_first_polls(source)
        other.text = BROKER.replace(" 5.0E8\n", " 5.1E8\n")
        assert len(take_first_polls(source).rounds) == 3


def test_an_exporter_that_restarted_is_sampled_again() -> None:
    exporter = Exporter()
    with serving(exporter):
        endpoint = Endpoint(1, "127.0.0.1", exporter.port)
        source = PrometheusSource([endpoint], load_rules("kafka-kraft"), PATIENCE_S)
        source.open()
        exporter.status = 503
        assert "HTTP 503" in (source.sample_all()[0].error or "")
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


def test_missing_readings_are_reported_with_their_meaning(snapshot: SnapshotAssertion) -> None:
    with opened(Exporter()) as source:
        sentences = shortcomings(source.nodes, 60.0)
        assert not is_blind(source.nodes)
    assert CLIENT_ONLY not in sentences
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
    exporter, seen = Exporter(first), []
    with opened(exporter) as source:
        for exporter.text in (first, moved + "other 5\n", moved, f"{moved}# a comment\n\n", first):
            values = values_of(source)
            seen.append((values["handler_idle_ns"], values["leader_partitions"]))
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


@pytest.mark.parametrize("count", [200, pytest.param(1_000, marks=pytest.mark.long)])
def test_many_brokers_and_hosts_are_each_sampled_once_a_round_by_one_request(count: int) -> None:
    with simulated_exporters(count, count) as (brokers, hosts):
        endpoints = [Endpoint(i, "127.0.0.1", port) for i, port in enumerate(brokers, 1)]
        addresses = {i: f"127.0.0.1:{port}" for i, port in enumerate(hosts, 1)}
        with (
            closing(PrometheusSource(endpoints, load_rules("kafka-kraft"), 120.0)) as source,
            closing(NodeExporters(addresses, 120.0)) as machines,
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
        found = [(each.broker_id, each.error) for each in samples]
        assert found == [(i, None) for i in range(1, count + 1)]
        assert {len(each.values) for each in samples} == {60}
    assert [each.error for each in looks] == [None] * count
    assert {each.values["cores"] for each in looks} == {16.0}
    idle_ns = [[each.values["handler_idle_ns"] for each in samples] for samples in rounds]
    assert all(one <= other for one, other in zip(*idle_ns, strict=True)), "counters grow"
