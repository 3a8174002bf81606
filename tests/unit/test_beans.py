from __future__ import annotations

import re

import pytest

from metrics.common.errors import ConfigError
from metrics.sources.beans import Kind, Role, beans_for, parse_version, readings_of

BROKER = [Role.BROKER]


def test_the_beans_follow_the_version_the_roles_and_the_place_of_metadata() -> None:
    shared, own = "RequestHandlerAvgIdlePercent", "BrokerRequestHandlerAvgIdlePercent"
    for version, roles, bean in (
        ("3.9.2", BROKER, shared),
        ("4.1.2", BROKER, shared),
        ("4.2.0", BROKER, own),
        ("4.3.1", [Role.BROKER, Role.CONTROLLER], own),
        ("10.0", BROKER, own),
    ):
        (found,) = (b for b in beans_for(version, roles) if b.name == "handler_idle_ns")
        assert found.object_name == f"kafka.server:type=KafkaRequestHandlerPool,name={bean}"
    for version in ("3.3.2", "3.9.2", "4.0.0", "4.1.2"):
        names = {bean.name for bean in beans_for(version, [Role.BROKER, Role.CONTROLLER])}
        assert "handler_idle_ns" not in names
        of_both = {"shared_handler_idle_ns", "controller_broker_heartbeat_ms", "fenced_brokers"}
        assert of_both <= names
    names = {bean.name for bean in beans_for("3.9.2", [Role.CONTROLLER])}
    assert "fenced_brokers" in names and "handler_idle_ns" not in names
    assert "fenced_brokers" not in {bean.name for bean in beans_for("3.9.2", BROKER)}
    by_quorum = [{b.name for b in beans_for("3.8.1", BROKER, has_quorum=q)} for q in (True, False)]
    assert by_quorum[0] - by_quorum[1] == {"controller_epoch"}


def test_the_readings_have_names_of_their_own_and_both_names_of_an_attribute() -> None:
    readings = readings_of(beans_for("2.8.2", BROKER))
    waits = [each.attribute for each in readings if each.name == "network_wait_ns"]
    assert waits == ["io-waittime-total", "io-wait-time-ns-total"], "the new one wins"
    useless = re.compile(r"Rate|Max|Min|Percentile|StdDev")
    assert not [each for each in readings if useless.search(each.attribute)]
    beans = beans_for("4.3.1", [Role.BROKER, Role.CONTROLLER])
    assert len({bean.name for bean in beans}) == len(beans)
    histograms = sum(bean.kind is Kind.HISTOGRAM for bean in beans)
    assert len({reading.name for reading in readings_of(beans)}) == len(beans) + histograms


def test_versions() -> None:
    for text, version in (
        ("3.9.2", (3, 9)), ("4.10.0-SNAPSHOT", (4, 10)), ("7.9.1-ccs", (3, 9)), ("8.0.0-ce", (4, 0))
    ):  # fmt: skip
        assert parse_version(text) == version
    with pytest.raises(ConfigError, match=r"'unknown'; expected .*such as 3\.9\.2"):
        parse_version("unknown")
