"""The configured sources of a cluster's metrics: exporters, JMX and a Prometheus server."""

from __future__ import annotations

import ssl
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trustme
from syrupy.assertion import SnapshotAssertion

from jobs.config import Cluster, load_cluster
from jobs.config.metrics_registry import (
    ClientOnly,
    JmxOfStartedBrokers,
    LocalProc,
    Metrics,
    NodeExporter,
    Prometheus,
    SourceTarget,
)
from metrics.common.errors import ConfigError
from metrics.sources.hosts.node_exporter import ServedHosts
from metrics.sources.http_access import bearer
from metrics.sources.server.prometheus_server import PrometheusServerSource
from tests.support.exporter_pages import BrokerState, page
from tests.support.schemas import schema_of
from tests.support.served_prometheus import PrometheusStandIn, RealTime, Scraped, serving_prometheus

PROMETHEUS = "cluster.metrics={prometheus: {port: 9404, rules: strimzi}}"
SAME = "{endpoints: {1: 'lb:9404', 2: 'lb:9404'}}"
HOSTS = "cluster.metrics.host.prometheus={port: 9100}"


def real(*overrides: str) -> Cluster:
    return load_cluster("example", ["cluster.jmx=null", *overrides])


def test_exporters_have_one_port_or_an_address_for_each_broker() -> None:
    source = real(PROMETHEUS).broker_source
    assert isinstance(source, Prometheus)
    assert source.addresses({1: "a", 2: "::1"}) == {1: "a:9404", 2: "[::1]:9404"}
    own = "{prometheus: {endpoints: {1: 'x:1'}, rules: ./own.yaml}}"
    each = real(f"cluster.metrics={own}").broker_source
    assert isinstance(each, Prometheus) and each.addresses({1: "a"}) == {1: "x:1"}
    with pytest.raises(ConfigError, match=r"metrics\.prometheus\.endpoints has no address for b"):
        each.addresses({1: "a", 2: "b"})
    section = real("cluster.jmx={port: 1}", f"cluster.metrics.host.prometheus={SAME}").host_source
    assert isinstance(section, NodeExporter), "brokers on one machine name its exporter each"
    assert section.addresses({1: "a", 2: "b"}) == {1: "lb:9404", 2: "lb:9404"}
    assert isinstance(real("cluster.jmx={port: 1}").host_source, LocalProc)


def test_brokers_that_share_the_address_of_one_process_are_refused(
    snapshot: SnapshotAssertion,
) -> None:
    jmx, shared = "cluster.jmx={port: 9999}", {1: "a", 2: "a"}
    cases = [
        (real(PROMETHEUS).broker_source, {1: "a", 2: "b", 3: "a"}),
        (real(f"cluster.metrics={{prometheus: {SAME}}}").broker_source, {1: "a", 2: "b"}),
        (real(jmx).broker_source, shared),
        (real(jmx, HOSTS).host_source, shared),
    ]
    sentences = []
    for section, hosts in cases:
        section.require_usable({1: "a"})
        with pytest.raises(ConfigError) as raised:
            section.require_usable(hosts)
        sentences.append(str(raised.value))
    assert sentences == snapshot


def test_each_kind_is_a_key_of_the_file_with_a_meaning() -> None:
    sections = schema_of("cluster")["$defs"]
    for section in ("Metrics", "HostMetrics"):
        assert all(each["description"] for each in sections[section]["properties"].values())


def test_the_lack_of_a_source_names_all_kinds_and_a_testbed_may_have_none() -> None:
    with pytest.raises(ConfigError) as caught:
        real()
    for key in ("jmx (such as {port: 9999}", *(f"metrics.{each}" for each in Metrics.model_fields)):
        assert key in str(caught.value) or key == "metrics.host"
    # A testbed can be judged without metrics but not by another source.
    blind = load_cluster("testbed", ["cluster.metrics.client_only=true"])
    assert isinstance(blind.broker_source, ClientOnly)
    assert isinstance(load_cluster("testbed").broker_source, JmxOfStartedBrokers)


URL, SELECTOR = "https://prometheus.example.com/base", 'job="kafka"'


def loaded(folder: Path, keys: str, *overrides: str) -> Cluster:
    file = folder / "mine.yaml"
    lines = "".join(f"    {each}\n" for each in keys.splitlines())
    file.write_text(f'bootstrap_servers: ["b:9092"]\nmetrics:\n  prometheus:\n{lines}')
    return load_cluster(str(file), list(overrides))


def test_a_server_has_tls_by_its_url_and_needs_a_value_for_each_broker(tmp_path: Path) -> None:
    keys = f"server: {URL}\nselector: '{SELECTOR}'\ncafile: /ca.pem"
    cluster = loaded(tmp_path, keys, "cluster.metrics.prometheus.broker_values.1=kafka-1")
    section = cluster.broker_source
    assert isinstance(section, Prometheus)
    assert (section.server, section.tls, section.rules) == (URL, True, "auto")
    assert (section.broker_label, section.broker_values) == ("instance", {1: "kafka-1"})
    assert section.contacted_hosts(["b"]) == ["prometheus.example.com"]
    assert section.addresses({1: "b"}) == {}
    section.require_usable({1: "b1"})
    with pytest.raises(ConfigError, match="has no value for broker 2"):
        section.require_usable({1: "b1", 2: "b2"})
    # A selector may have braces.
    for selector in ('job="k"', '{job="k"}', '{job=~"k|k2", cluster!="test",}', 'a="b\\"c"'):
        served = Prometheus(server=URL, selector=selector).served({1: "b"}, 1.0)
        assert served is not None
        found = served.spec.selector
        assert not found.startswith("{") and not found.endswith((",", "}"))


def never() -> Any:
    raise AssertionError("not asked for")


def test_brokers_and_hosts_are_read_from_a_server_with_tls_and_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    monkeypatch.setenv("PROMETHEUS_TOKEN", "a-token")
    node = 'node_cpu_seconds_total{cpu="0",mode="idle"} 5\n'
    state = BrokerState(at_s=1_000.0)
    pages = [
        Scraped({"job": "kafka", "instance": "localhost:9404"},
                lambda at_s: page("none", state.later(at_s % 1e5)), 0.5),
        Scraped({"job": "node", "instance": "localhost:9100"}, lambda _: node, 0.5),
    ]  # fmt: skip
    stand_in = PrometheusStandIn(RealTime(), pages, login=bearer("a-token", ""))
    with serving_prometheus(stand_in, context) as server:
        keys = (
            f"server: https://localhost:{server.port}/\ncafile: {tmp_path / 'ca.pem'}\n"
            f"token_from: env:PROMETHEUS_TOKEN\nselector: '{SELECTOR}'"
        )
        of_hosts = keys.replace("kafka", "node").replace("\n", ", ")
        cluster = loaded(tmp_path, keys, f"cluster.metrics.host.prometheus={{{of_hosts}}}")
        assert isinstance(cluster.host_source, NodeExporter)
        target = SourceTarget({1: "localhost"}, "4.1", never, never)
        with closing(cluster.broker_source.open(target)) as source:
            assert isinstance(source, PrometheusServerSource)
            assert [each.error for each in source.sample_all()] == [None]
        with closing(cluster.host_source.open(target)) as hosts:
            assert isinstance(hosts, ServedHosts)
            assert hosts.brokers == {"localhost": (1,)}
