"""The keys of a Prometheus server in a cluster's file, and the sources that they open."""

from __future__ import annotations

import ssl
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trustme

from jobs.config import Cluster, load_cluster
from jobs.config.metrics_registry import NodeExporter, Prometheus, SourceTarget
from metrics.common.errors import ConfigError
from metrics.sources.hosts.node_exporter import ServedHosts
from metrics.sources.http_access import bearer
from metrics.sources.server.source import PrometheusServerSource
from tests.support.exporter_pages import BrokerState, page
from tests.support.served_prometheus import (
    PrometheusStandIn,
    RealTime,
    Scraped,
    serving_prometheus,
)

URL, SELECTOR = "https://prometheus.example.com/base", 'job="kafka"'


def loaded(folder: Path, keys: str, *overrides: str) -> Cluster:
    file = folder / "mine.yaml"
    lines = "".join(f"    {each}\n" for each in keys.splitlines())
    file.write_text(f'bootstrap_servers: ["b:9092"]\nmetrics:\n  prometheus:\n{lines}')
    return load_cluster(str(file), list(overrides))


def test_a_server_has_tls_by_its_url(tmp_path: Path) -> None:
    keys = f"server: {URL}\nselector: '{SELECTOR}'\ncafile: /ca.pem"
    cluster = loaded(tmp_path, keys, "cluster.metrics.prometheus.broker_values.1=kafka-1")
    section = cluster.broker_source
    assert isinstance(section, Prometheus)
    assert (section.server, section.tls, section.rules) == (URL, True, "auto")
    assert (section.broker_label, section.broker_values) == ("instance", {1: "kafka-1"})
    assert section.contacted_hosts(["b"]) == ["prometheus.example.com"]
    assert section.addresses({1: "b"}) == {}


def test_a_selector_may_have_braces() -> None:
    for selector in ('job="k"', '{job="k"}', '{job=~"k|k2", cluster!="test",}', 'a="b\\"c"'):
        served = Prometheus(server=URL, selector=selector).served({1: "b"}, 1.0)
        assert served is not None
        found = served[1].selector
        assert not found.startswith("{") and not found.endswith((",", "}"))


def test_each_broker_needs_a_value_where_values_are_given() -> None:
    section = Prometheus(server=URL, selector=SELECTOR, broker_values={1: "a"})
    section.require_usable({1: "b1"})
    with pytest.raises(ConfigError, match="has no value for broker 2"):
        section.require_usable({1: "b1", 2: "b2"})


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
