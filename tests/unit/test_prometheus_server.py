"""Brokers and hosts that are read from a stand-in of a Prometheus server, over real HTTP."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from itertools import pairwise

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.checks.cluster import history_findings, metrics_findings
from jobs.config.metrics_registry import load_rules
from metrics.common.errors import ConfigError
from metrics.sources.beans import Role
from metrics.sources.first_polls import least_interval_s, slower_sampling, take_first_polls
from metrics.sources.hosts import host_sample as readings
from metrics.sources.hosts.node_exporter import ServedHosts
from metrics.sources.http_access import HttpAccess, ScrapeError, basic
from metrics.sources.rules import RuleSet
from metrics.sources.sample import BrokerSample
from metrics.sources.server.api import ServerApi
from metrics.sources.server.broker_label import BrokerLabel
from metrics.sources.server.feed import CLOCK_OFFSET_MAX_S, STALE_INTERVALS, FeedSpec, ServerFeed
from metrics.sources.server.prometheus_server import PrometheusServerSource
from metrics.sources.source import poll_interval_of, sample_interval_of
from metrics.traffic.pattern import SAMPLES_MIN, Phases
from metrics.trial.client import OFFSET_MAX_S
from metrics.windows.broker import broker_window
from tests.support.exporter_pages import BrokerState, page
from tests.support.processes import PATIENCE_S
from tests.support.served_prometheus import PrometheusStandIn, Scraped, Time, serving_prometheus

START_S = 1_000_000.0
KEY = "metrics.prometheus"
POD = BrokerLabel(KEY, "pod", r"-(\d+)$")
IDLE = {1: 0.8, 2: 0.35}
HOSTS = {1: "b1.example.com", 2: "b2.example.com"}
NODE_PAGE = (
    'node_cpu_seconds_total{{cpu="0",mode="idle"}} {0}\n'
    'node_cpu_seconds_total{{cpu="1",mode="user"}} {0}\nnode_procs_running 3\n'
    'node_disk_written_bytes_total{{device="sda"}} 4096\n'
)


def broker_page(broker: int, rules: str = "confluent") -> Callable[[float], str]:
    state = BrokerState(at_s=START_S - 600.0, node_id=broker)

    def shown(at_s: float) -> str:
        seconds = at_s - state.at_s
        messages = round(1_000 * broker * seconds)
        return page(rules, state.later(seconds, IDLE[broker], messages))

    return shown


def broker_target(broker: int, rules: str = "confluent", **more: object) -> Scraped:
    """A target of a broker; `more` are fields of the target, or further labels."""
    fields_of = {each.name for each in fields(Scraped)}
    labels = {"job": "kafka", "instance": f"10.0.0.{broker}:9404", "pod": f"c-kafka-{broker}"}
    labels |= {key: str(value) for key, value in more.items() if key not in fields_of}
    target = Scraped(labels, broker_page(broker, rules), phase_s=0.3 * broker)
    return replace(target, **{k: v for k, v in more.items() if k in fields_of})  # type: ignore[arg-type]


@contextmanager
def server_of(*targets: Scraped) -> Iterator[PrometheusStandIn]:
    found = list(targets) or [broker_target(1), broker_target(2)]
    with serving_prometheus(PrometheusStandIn(Time(START_S), found)) as server:
        yield server


def source_of(
    server: PrometheusStandIn, label: BrokerLabel = POD, selector: str = 'job="kafka"',
    rules: RuleSet | None = None, access: HttpAccess | None = None,
    hosts: Mapping[int, str] = HOSTS,
) -> PrometheusServerSource:  # fmt: skip
    clock = server.time
    api = ServerApi(server.url, access or HttpAccess(KEY), PATIENCE_S, clock)
    spec = FeedSpec(selector, label, hosts)
    return PrometheusServerSource(ServerFeed(api, spec, clock, clock.pause), rules, "4.1")


@contextmanager
def opened(server: PrometheusStandIn, **more: object) -> Iterator[PrometheusServerSource]:
    with closing(source_of(server, **more)) as source:  # type: ignore[arg-type]
        source.open()
        yield source


def refused(server: PrometheusStandIn, **more: object) -> str:
    source = source_of(server, **more)  # type: ignore[arg-type]
    with closing(source), pytest.raises(ConfigError) as error:
        source.open()
    return re.sub(r":\d{4,5}\b", ":PORT", str(error.value))


def sampled(source: PrometheusServerSource, rounds: int) -> list[BrokerSample]:
    return [each for _ in range(rounds) for each in source.sample_all()]


def idle_of(samples: list[BrokerSample], broker: int) -> float | None:
    own = [each for each in samples if each.broker_id == broker]
    return broker_window(own, broker, own[0].at_s, own[-1].at_s, 2.0).handler_idle


@pytest.mark.parametrize("rules", ["none", "confluent", "kafka-kraft-3_0_0", "strimzi", "named"])
def test_brokers_are_read_by_the_choice_of_series_or_by_named_rules(rules: str) -> None:
    named = load_rules("strimzi") if rules == "named" else None
    targets = [broker_target(i, "strimzi" if named else rules) for i in HOSTS]
    with server_of(*targets) as server, opened(server, rules=named) as source:
        samples = sampled(source, 6)
        node = source.nodes[1]
    assert (node.version, node.roles) == ("4.1", frozenset({Role.BROKER}))
    assert node.facts["jvm.vendor"] == "Debian"
    series = "" if named else node.series["handler_idle_ns"]
    assert "pod" not in series, "labels of the server are not the page's"
    for broker, idle in IDLE.items():
        assert idle_of(samples, broker) == pytest.approx(idle, abs=1e-6)
        own = [each for each in samples if each.broker_id == broker]
        grown = own[-1].values["messages_in"] - own[0].values["messages_in"]
        assert grown == pytest.approx(1_000 * broker * (own[-1].at_s - own[0].at_s))


def test_a_sample_has_the_time_of_its_scrape_on_the_drivers_clock() -> None:
    with server_of() as server:
        server.ahead_s = 0.2
        with opened(server) as source:
            samples = source.sample_all()
    assert [each.broker_id for each in samples] == [1, 2]
    for sample in samples:
        on_server = sample.at_s + 0.2
        assert (on_server - 0.3 * sample.broker_id) % 2.0 == pytest.approx(0.0, abs=1e-6)


def test_each_scrape_is_delivered_once_while_polls_follow_each_other() -> None:
    with server_of() as server, opened(server) as source:
        source.sample_all()
        queries = len(server.queries)
        samples = sampled(source, 10)
        answered = [each for each in server.queries[queries:] if each != "time()"]
    for broker in IDLE:
        times_s = [each.at_s for each in samples if each.broker_id == broker]
        assert [later - earlier for earlier, later in pairwise(times_s)] == [2.0] * 9
    assert len(answered) == 10, "one query for each poll"
    assert all("avgidlepercent" in each for each in answered)
    assert not any("partitioncount" in each for each in answered), "series without a reading"
    assert set(server.methods) == {"POST"}


def test_a_poll_after_a_pause_has_one_scrape_that_is_not_older_than_the_poll() -> None:
    with server_of() as server, opened(server) as source:
        source.sample_all()
        server.time.pause(61.0)
        called_s = server.time()
        samples = source.sample_all()
    assert [each.broker_id for each in samples] == [1, 2]
    assert all(called_s <= each.at_s <= called_s + 2.0 for each in samples)


def test_a_target_without_new_scrapes_is_stale_and_its_last_numbers_are_not_new() -> None:
    stopped = broker_target(2)
    with server_of(broker_target(1), stopped) as server, opened(server) as source:
        source.sample_all()
        stopped.until_s = server.time()
        (good, *_, stale) = source.sample_all()
        assert (good.broker_id, good.error) == (1, None)
        assert (stale.broker_id, stale.values) == (2, {})
        assert stale.error is not None and "expected one scrape every 2 s" in stale.error
        (age,) = map(float, re.findall(r"is (\d+) s old", stale.error))
        assert age >= STALE_INTERVALS * 2.0


def test_a_scrape_that_failed_is_no_sample() -> None:
    broken = broker_target(1)
    with server_of(broken, broker_target(2)) as server, opened(server) as source:
        source.sample_all()
        broken.fails_from_s = server.time()
        (failed, *_) = source.sample_all()
        assert failed.error is not None and "scrape with pod='c-kafka-1' failed" in failed.error
        broken.fails_from_s = float("inf")
        assert source.sample_all()[-1].error is None


def test_a_server_that_is_away_for_a_poll_loses_no_scrape() -> None:
    with server_of() as server, opened(server) as source:
        before = source.sample_all()
        server.instead = (503, "busy")
        away = source.sample_all()
        server.instead = None
        after = source.sample_all()
    assert [each.error is None for each in away] == [False, False]
    assert "HTTP 503" in str(away[0].error)
    assert after[0].at_s - before[0].at_s == 2.0


def test_the_clocks_of_server_and_driver_are_compared_at_the_opening_and_later(
    snapshot: SnapshotAssertion,
) -> None:
    assert CLOCK_OFFSET_MAX_S == OFFSET_MAX_S
    with server_of() as server:
        server.ahead_s = -1.3
        assert refused(server) == snapshot
        server.ahead_s = 0.0
        with opened(server) as source:
            source.sample_all()
            server.time.pause(60.0)
            server.ahead_s = 0.7
            errors = [each.error for each in source.sample_all()]
    assert all("0.700 s ahead of the driver's" in str(each) for each in errors)


def test_a_proxy_that_only_reads_is_asked_with_get() -> None:
    with server_of() as server:
        server.posts = False
        with opened(server) as source:
            assert source.sample_all()[0].error is None
        assert set(server.methods) == {"GET"}


def test_a_server_behind_a_login_is_read_with_it(snapshot: SnapshotAssertion) -> None:
    with server_of() as server:
        server.login = basic("me", "secret", KEY)
        assert refused(server) == snapshot
        access = HttpAccess(KEY, login=lambda: basic("me", "secret", KEY))
        with opened(server, access=access) as source:
            assert source.sample_all()[0].error is None


INSTEAD = {
    "HTML": (200, "<html><head><title>Sign in</title></head></html>"),
    "404": (404, "404 page not found"),
    "redirect": (302, ""),
    "JSON": (200, '{"database": "ok", "version": "11.0"}'),
    "exporter": (200, "node_load1 0.5\n"),
    "empty": (200, ""),
    "odd": (200, '{"status": "success", "data": {"result": "none"}}'),
    "403": (403, "Forbidden"),
    "too much": (
        422, '{"status": "error", "error": "query processing would load too many samples"}'
    ),
}  # fmt: skip


@pytest.mark.parametrize("instead", INSTEAD)
def test_what_is_no_prometheus_server_is_named(instead: str, snapshot: SnapshotAssertion) -> None:
    with server_of() as server:
        server.instead = INSTEAD[instead]
        assert refused(server) == snapshot
    text = refused(server)
    assert "connection refused" in text and "metrics.prometheus.server" in text


def label_of(*values: str) -> dict[str, object]:
    """The label of the brokers, with values that are given for them."""
    return {"label": BrokerLabel(KEY, "pod", values=dict(enumerate(values, 1)))}


ONE_SCRAPE = broker_target(2, interval_s=299.0, phase_s=START_S % 299.0 - 100.0)
LEADERS_ONLY = [
    Scraped({"job": "kafka", "pod": f"c-kafka-{i}"},
            lambda _: "kafka_server_replicamanager_leadercount 3\n")
    for i in HOSTS
]  # fmt: skip
WRONG: dict[str, tuple[list[Scraped], dict[str, object]]] = {
    "no series": ([], {"selector": 'job="kafak"'}),
    "no label": ([], {"label": BrokerLabel(KEY, "broker")}),
    "another exporter": ([Scraped({"job": "kafka", "pod": "c-kafka-1"}, NODE_PAGE.format)], {}),
    "two clusters with the same pods": (
        [broker_target(1, cluster="a"), broker_target(1, cluster="b"), broker_target(2)], {}
    ),
    "two clusters with other pods": (
        [broker_target(1), broker_target(2), broker_target(2, pod="d-kafka-2")], {}
    ),
    "no broker 2": ([broker_target(1)], {}),
    "hosts that no value names": ([], {"label": BrokerLabel(KEY)}),
    "one value for two brokers": ([], label_of("c-kafka-1", "c-kafka-1")),
    "a value that is not there": ([], label_of("c-kafka-1", "x")),
    "one scrape": ([broker_target(1), ONE_SCRAPE], {}),
    "no scrape any more": ([broker_target(1), broker_target(2, until_s=START_S - 100.0)], {}),
    "another node": (
        [broker_target(1, "none", pod="c-kafka-2"), broker_target(2, "none", pod="c-kafka-1")], {}
    ),
    "a malformed selector": ([], {"selector": "job=kafka"}),
    "no idle time": (LEADERS_ONLY, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_selection_is_refused_with_its_names(
    case: str, snapshot: SnapshotAssertion
) -> None:
    targets, more = WRONG[case]
    with server_of(*targets) as server:
        assert refused(server, **more) == snapshot


def test_a_replaced_pod_counts_by_its_new_target_and_a_second_target_is_no_sample() -> None:
    older = broker_target(1, instance="10.7.7.7:9404", until_s=START_S - 60.0)
    with server_of(older, broker_target(1), broker_target(2)) as server, opened(server) as source:
        assert [each.error for each in source.sample_all()] == [None, None]
        server.targets.append(broker_target(1, job="kafka", instance="10.9.9.9:9404"))
        found = source.sample_all()
    assert "several targets with pod='c-kafka-1'" in str(found[0].error)
    assert "instance is 10.0.0.1:9404 and 10.9.9.9:9404" in str(found[0].error)
    assert found[-1].error is None


def test_targets_are_told_apart_without_the_servers_own_series() -> None:
    targets = [broker_target(i, "none", has_up=False, interval_s=15.0) for i in HOSTS]
    with server_of(*targets) as server, opened(server) as source:
        assert "pod" not in source.nodes[1].series["handler_idle_ns"]
        samples = sampled(source, 3)
    assert idle_of(samples, 1) == pytest.approx(IDLE[1], abs=1e-6)


def test_the_history_of_a_reading_has_a_value_for_each_step_with_a_scrape() -> None:
    with server_of() as server, opened(server) as source:
        found = source.history("handler_idle_ns", START_S - 60.0, START_S, 10.0)
        assert found.keys() == HOSTS.keys()
        for broker, values in found.items():
            assert [at_s for at_s, _ in values] == [START_S - 60.0 + 10.0 * i for i in range(7)]
            grown = (values[-1][1] - values[0][1]) / 1e9 / 60.0
            assert grown == pytest.approx(IDLE[broker], abs=0.02)
        with pytest.raises(ConfigError, match="shows no series"):
            source.history("no_such_reading", START_S - 60.0, START_S, 10.0)
        server.instead = (503, "busy")
        with pytest.raises(ScrapeError, match="HTTP 503"):
            source.history("messages_in", START_S - 60.0, START_S, 10.0)


def test_past_samples_are_those_of_each_step_and_make_windows() -> None:
    with server_of() as server, opened(server) as source:
        found = source.past_samples(START_S - 60.0, START_S, 10.0)
        assert [each.at_s for each in found[::2]] == [START_S - 60.0 + 10.0 * i for i in range(7)]
        for broker in HOSTS:
            window = broker_window(found, broker, START_S - 60.0, START_S, 10.0)
            assert window.handler_idle == pytest.approx(IDLE[broker], abs=0.02)
            assert window.bytes_in_per_s is not None
        nodes = source.nodes
        source.nodes = {each: replace(node, rates=("bytes_in",)) for each, node in nodes.items()}
        assert source.past_samples(START_S - 60.0, START_S, 10.0) == []
        server.instead = (503, "busy")
        source.nodes = {each: replace(node, rates=()) for each, node in nodes.items()}
        with pytest.raises(ScrapeError, match="HTTP 503"):
            source.past_samples(START_S - 60.0, START_S, 10.0)


def test_hosts_are_read_from_the_same_server() -> None:
    targets = [
        Scraped({"job": "node", "instance": f"{host}:9100"}, NODE_PAGE.format)
        for host in HOSTS.values()
    ]
    with server_of(*targets) as server:
        api = ServerApi(server.url, HttpAccess("metrics.host.prometheus"), PATIENCE_S, server.time)
        label = BrokerLabel("metrics.host.prometheus", is_shared=True)
        spec = FeedSpec('job="node"', label, HOSTS, "the brokers' hosts")
        clock = (server.time, server.time.pause)
        wrong = ServedHosts(ServerFeed(api, spec, *clock), ("sdz",))
        with pytest.raises(ConfigError, match=r"='b1.example.com:9100' shows \(sda"):
            wrong.open()
        with closing(ServedHosts(ServerFeed(api, spec, *clock), ("sda",))) as hosts:
            hosts.open()
            assert hosts.brokers == {"b1.example.com": (1,), "b2.example.com": (2,)}
            first, last = hosts.sample_all(), hosts.sample_all()
    assert first[0].values[readings.CORES] == 2
    assert first[0].values[f"{readings.DISK_WRITTEN_BYTES}:sda"] == 4096
    assert first[0].values[f"{readings.LOG_DISK}:sda"] == 1.0
    idle = f"{readings.CPU_S}:idle"
    assert last[0].values[idle] - first[0].values[idle] == last[0].at_s - first[0].at_s == 2.0


def test_a_value_means_a_broker() -> None:
    own = {1: "y", 2: "x"}
    shared = BrokerLabel(KEY, "z", values={1: "all", 2: "all"}, is_shared=True)
    cases = [
        ("b1.example.com:9404 b2.example.com:9404", BrokerLabel(KEY), (0, 1)),
        ("b1 b2", BrokerLabel(KEY, "host"), (0, 1)),
        ("b1.other.net:9 b2.other.net:9", BrokerLabel(KEY), (0, 1)),
        ("2 1", BrokerLabel(KEY, "node_id"), (1, 0)),
        ("k-0001 k-0002", POD, (0, 1)),
        ("x y", BrokerLabel(KEY, "z", values=own), (1, 0)),
        ("all", shared, (0, 0)),
    ]
    for text, label, (first, second) in cases:
        shown = text.split()
        assert label.assign(shown, HOSTS) == {1: shown[first], 2: shown[second]}, text
    hosts = {1: "2001:db8::1", 2: "2001:db8::2"}
    for shown in (["[2001:db8::1]:9404", "[2001:db8::2]:9404"], list(hosts.values())):
        assert BrokerLabel(KEY).assign(shown, hosts) == {1: shown[0], 2: shown[1]}


def test_the_scrape_interval_bounds_the_window(snapshot: SnapshotAssertion) -> None:
    targets = [broker_target(i, interval_s=15.0, until_s=START_S + 300.0) for i in HOSTS]
    slow = broker_target(2, interval_s=15.0)
    with server_of(broker_target(1), slow) as server, opened(server) as source:
        assert {i: node.interval_s for i, node in source.nodes.items()} == {1: 2.0, 2: 15.0}
        assert sample_interval_of(source, 1.0) == 15.0
        assert poll_interval_of(source, 1.0) == 0.25
    with server_of(*targets) as server, opened(server) as source:
        polls = take_first_polls(source)
        assert len(polls.rounds) == 1
        assert least_interval_s(polls, 60.0, SAMPLES_MIN) == 15.0
        assert slower_sampling(polls, 15.0, 15.0) == ()
        assert slower_sampling(polls, 1.0, 15.0) == snapshot
        with pytest.raises(ConfigError) as error:
            least_interval_s(polls, 59.0, SAMPLES_MIN)
        assert str(error.value) == snapshot
        found = metrics_findings(source, None, Phases(warmup_s=1.0, measure_s=60.0))
        assert [each.sentence for each in found if each.check == "time of a poll"] == snapshot
        with pytest.raises(ConfigError, match="has 2 scrapes; expected 4 or more"):
            metrics_findings(source, None, Phases(warmup_s=1.0, measure_s=30.0))


def test_doctor_names_the_busiest_broker_of_the_past(snapshot: SnapshotAssertion) -> None:
    targets = [broker_target(i, interval_s=60.0, from_s=START_S - 3_000.0) for i in HOSTS]
    with server_of(*targets) as server, opened(server) as source:
        ((finding),) = history_findings(source, server.time)
        assert finding.sentence == snapshot
        server.instead = (503, "busy")
        ((unknown),) = history_findings(source, server.time)
        assert "HTTP 503" in unknown.sentence
