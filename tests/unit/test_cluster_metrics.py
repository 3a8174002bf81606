"""The ways to a cluster's metrics, as configured."""

from __future__ import annotations

import pytest

from jobs.config import Cluster, load_cluster
from metrics.common.errors import ConfigError

PROMETHEUS = "cluster.metrics={prometheus: {port: 9404, rules: strimzi}}"


def real(*overrides: str) -> Cluster:
    return load_cluster("example", ["cluster.jmx=null", *overrides])


def test_exporters_have_one_port_or_an_address_for_each_broker() -> None:
    way = real(PROMETHEUS).metrics
    assert way is not None
    assert way.prometheus is not None
    assert way.prometheus.addresses({1: "a", 2: "b"}) == {1: "a:9404", 2: "b:9404"}
    each = real("cluster.metrics={prometheus: {endpoints: {1: 'x:1'}, rules: ./own.yaml}}").metrics
    assert each is not None
    assert each.prometheus is not None
    with pytest.raises(ConfigError, match=r"metrics\.prometheus\.endpoints has no address for b"):
        each.prometheus.addresses({1: "a", 2: "b"})


def test_a_testbed_can_be_judged_without_its_metrics_but_not_by_others() -> None:
    blind = load_cluster("testbed", ["cluster.metrics.client_only=true"]).metrics
    assert blind is not None
    assert blind.client_only
    assert load_cluster("testbed").metrics is None
    with pytest.raises(ConfigError, match="brings its own jmx"):
        load_cluster("testbed", [PROMETHEUS])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((), r"jmx is missing.*metrics\.client_only: true"),
        (("cluster.jmx={port: 1}", PROMETHEUS), "jmx and metrics are both given"),
        (("cluster.metrics={}",), "expected prometheus, client_only: true or host"),
        (
            ("cluster.metrics={prometheus: {port: 1, rules: msk}, client_only: true}",),
            "expected one of prometheus and client_only",
        ),
        (("cluster.metrics={jmx: {port: 1}}",), r"the known key of that name is jmx; move it"),
        (("cluster.metrics={prometheus: {port: 1}}",), "rules is missing"),
        (("cluster.metrics={prometheus: {rules: msk}}",), "exactly one of port"),
    ],
)
def test_a_way_that_is_none_or_two_says_what_to_do(
    overrides: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        real(*overrides)
