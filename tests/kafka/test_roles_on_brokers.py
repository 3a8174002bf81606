"""Roles, readings and idle handlers of the processes of real releases, which do nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest

from jobs.testbed.launcher import start
from metrics.judging.verdict import judge
from metrics.sources.beans import HANDLER_IDLE_NS, NETWORK_WAIT_NS, Role, parse_version
from metrics.sources.jmx import open_jmx
from metrics.sources.sample import BrokerSample
from metrics.sources.shortcomings import shortcomings
from metrics.sources.source import MetricsSource, brokers_of
from metrics.trial.evidence import ClusterFacts
from metrics.windows.broker import BrokerWindow, broker_windows
from search.model import Verdict
from tests.bench.sampling import bare_jvm
from tests.support.evidence import evidence, goal

CASES = [
    ("2.8.2", "zookeeper"),
    ("3.9.2", "zookeeper"),
    ("3.9.2", "combined"),
    ("4.1.2", "combined"),
]
BROKER = frozenset({Role.BROKER})
COMBINED = frozenset({Role.BROKER, Role.CONTROLLER})
SETTLED_S = 20.0
REST_S = 12.0
"""Time that brokers get after their start, and time for which they are watched [s]."""


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def addresses(request: pytest.FixtureRequest) -> Iterator[tuple[str, str, Mapping[int, str]]]:
    """Release, place of the metadata, and broker id → JMX of two brokers that have settled."""
    version, metadata = request.param
    overrides = {"metadata": metadata}
    with start("calibrated", brokers=2, kafka_version=version, overrides=overrides) as testbed:
        time.sleep(SETTLED_S)
        yield version, metadata, testbed.jmx_endpoints


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with bare_jvm() as (view, _):
        yield view


def watched(source: MetricsSource) -> tuple[list[BrokerSample], tuple[BrokerWindow, ...]]:
    """Samples of idle brokers, and the windows between them."""
    samples = source.sample_all()
    time.sleep(REST_S)
    samples += source.sample_all()
    assert [each.error for each in samples] == [None] * len(samples)
    edges = min(s.at_s for s in samples), max(s.at_s for s in samples)
    return samples, broker_windows(samples, brokers_of(source), *edges, REST_S)


@pytest.mark.long
@pytest.mark.parametrize("through", ["driver-jvm", "jmxquery"])
def test_roles_readings_and_idle_handlers_are_right(
    addresses: tuple[str, str, Mapping[int, str]], jvm: Any, through: str
) -> None:
    version, metadata, endpoints = addresses
    with closing(open_jmx(endpoints, jvm if through == "driver-jvm" else None, 10.0)) as source:
        nodes, samples, windows = source.nodes, *watched(source)
    is_combined = metadata == "combined"
    assert {node.roles for node in nodes.values()} == {COMBINED if is_combined else BROKER}
    assert {node.version for node in nodes.values()} == {version}
    assert {node.has_quorum for node in nodes.values()} == {is_combined}
    assert {name for node in nodes.values() for name in node.lacks} == set()
    for sample in samples:
        assert any(name.startswith(NETWORK_WAIT_NS) for name in sample.values)
        assert HANDLER_IDLE_NS in sample.values
    assert [window.broker_id for window in windows] == sorted(endpoints)
    print(f"\n{version} {metadata} {through}")  # noqa: T201 - the figures of this release
    for window in windows:
        print(  # noqa: T201
            f"  broker {window.broker_id}: idle {window.handler_idle:.4f} "
            f"± {window.handler_idle_error or 0.0:.4f}, network {window.network_idle:.3f}"
        )
        assert window.contradiction is None
        assert window.handler_idle == pytest.approx(1.0, abs=0.06)
        assert window.network_idle is not None
        assert (window.handler_idle_error is not None) is is_combined
        assert (window.handler_idle_error or 0.0) < 0.05
        assert (window.controller_elections is not None) is is_combined
    caveats = " ".join(shortcomings(nodes, REST_S))
    assert ("before Kafka 4.2 both share one metric" in caveats) is is_combined
    assert ("as with ZooKeeper" in caveats) is not is_combined
    judgement = judge(evidence(brokers=windows, cluster=ClusterFacts()), goal())
    assert judgement.verdict is Verdict.SUSTAINED, judgement.reasons
    assert parse_version(version) < (4, 2), "from there on the broker has a meter of its own"
