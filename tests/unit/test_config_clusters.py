"""Clusters and testbeds: their addresses, their metrics, and refused combinations."""

from __future__ import annotations

import pytest

from jobs.config import (
    load,
    load_cluster,
)
from metrics.common.errors import ConfigError


def cluster_refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_cluster("example", [f"cluster.{each}" for each in overrides])
    return str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (("jmx=null",), ("jmx is missing", "JMX_PORT")),
        (("jmx={}",), ("exactly one of port",)),
        (("jmx.endpoints.1=a:1",), ("exactly one of port",)),
        (("jmx.prt=1",), ("nearest known key is port",)),
        (("jmx.port=99999",), ("jmx.port is 99999", "from 1 to 65535")),
        (("jmx.port=null", "jmx.endpoints.1=a"), ("an address such as",)),
        (("jmx.port=null", "jmx.endpoints.one=a:1"), ("jmx.endpoints.one", "a whole number")),
        (("bootstrap_servers=[a]",), ("bootstrap_servers.0", "an address such as")),
        (("bootstrap_servers=[a:99999]",), ("an address such as",)),
        (("bootstrap_servers=null",), ("exactly one of testbed",)),
        (("testbed.profile=disk-bound",), ("exactly one of testbed",)),
        (("security.protocol=TLS",), ("PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",)),
    ],
)
def test_the_message_for_a_wrong_cluster_states_the_remedy(
    overrides: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    message = cluster_refusal(*overrides)
    for part in parts:
        assert part in message


def test_a_testbed_brings_its_own_metrics() -> None:
    with pytest.raises(ConfigError, match="brings its own cluster_id"):
        load_cluster("testbed", ["cluster.jmx.port=9999"])


@pytest.mark.parametrize("version", ["2.7.2", '"4.1"', "4.1", "latest"])
def test_a_testbed_needs_a_whole_version_from_2_8_on(version: str) -> None:
    with pytest.raises(ConfigError, match=r"a Kafka version from 2\.8\.0 on"):
        load_cluster("testbed", [f"cluster.testbed.kafka_version={version}"])


def test_broker_properties_of_a_testbed_can_be_set() -> None:
    cluster = load_cluster("testbed", ["cluster.testbed.properties.num.io.threads=1"])
    assert cluster.testbed is not None
    assert cluster.testbed.properties["num.io.threads"] == "1"


def test_more_replicas_than_testbed_brokers_are_refused() -> None:
    with pytest.raises(ConfigError, match="brokers of cluster testbed is 1"):
        load("testbed", "demo", "default", ["cluster.testbed.brokers=1"])


def test_one_jmx_port_stands_for_every_broker() -> None:
    jmx = load_cluster("example").jmx
    assert jmx is not None
    assert jmx.addresses({1: "a", 2: "::1"}) == {1: "a:9999", 2: "[::1]:9999"}


def test_each_broker_needs_an_endpoint() -> None:
    jmx = load_cluster("example", ["cluster.jmx={endpoints: {1: 'a:1', 2: 'b:2'}}"]).jmx
    assert jmx is not None
    assert jmx.addresses({1: "x"}) == {1: "a:1"}
    with pytest.raises(ConfigError, match="no address for broker 3"):
        jmx.addresses({1: "x", 3: "y"})
