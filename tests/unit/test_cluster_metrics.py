"""The configured sources of a cluster's metrics, and their registry."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.config import Cluster, load_cluster
from jobs.config.metrics_registry import (
    ClientOnly,
    JmxOfStartedBrokers,
    LocalProc,
    Metrics,
    NodeExporter,
    Prometheus,
)
from metrics.common.errors import ConfigError
from tests.support.schemas import schema_of

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


def test_a_testbed_can_be_judged_without_metrics_but_not_by_another_source() -> None:
    blind = load_cluster("testbed", ["cluster.metrics.client_only=true"])
    assert isinstance(blind.broker_source, ClientOnly)
    assert isinstance(load_cluster("testbed").broker_source, JmxOfStartedBrokers)
    for other in (
        PROMETHEUS,
        HOSTS,
        "cluster.metrics={client_only: true, host: {prometheus: {port: 1}}}",
    ):
        with pytest.raises(ConfigError, match="brings its own cluster_id"):
            load_cluster("testbed", [other])


def test_each_kind_is_a_key_of_the_file_with_a_meaning() -> None:
    sections = schema_of("cluster")["$defs"]
    for section in ("Metrics", "HostMetrics"):
        assert all(each["description"] for each in sections[section]["properties"].values())


def test_no_source_or_two_sources_are_refused_with_the_remedy() -> None:
    both = "cluster.metrics={prometheus: {port: 1, rules: msk}, client_only: true}"
    cases: list[tuple[tuple[str, ...], str]] = [
        ((), r"jmx is missing.*metrics\.client_only: true"),
        (("cluster.jmx={port: 1}", PROMETHEUS), "jmx and metrics are both given"),
        (("cluster.metrics={}",), "expected prometheus, client_only: true, extension or host"),
        (("cluster.jmx={port: 1}", "cluster.metrics={host: {}}"), "expected one of prometheus"),
        ((both,), "expected one of prometheus and client_only"),
        (("cluster.metrics={jmx: {port: 1}}",), r"the known key of that name is jmx; move it"),
        (("cluster.metrics={prometheus: {rules: msk}}",), "exactly one of port"),
    ]
    for overrides, message in cases:
        with pytest.raises(ConfigError, match=message):
            real(*overrides)
    with pytest.raises(ConfigError) as caught:
        real()
    for key in ("`jmx: {port: 9999}`", *(f"metrics.{each}" for each in Metrics.model_fields)):
        assert key in str(caught.value) or key == "metrics.host"
