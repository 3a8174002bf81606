from __future__ import annotations

import re

import pytest

from metrics.common.errors import ConfigError
from metrics.sources.beans import (
    PHASES,
    REQUESTS,
    Kind,
    Role,
    beans_for,
    parse_version,
    readings_of,
)

BROKER = [Role.BROKER]


def test_the_handlers_bean_follows_the_version() -> None:
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


def test_combined_roles_before_4_2_have_a_shared_meter_and_the_controllers_requests() -> None:
    shared = {"shared_handler_idle_ns", "controller_broker_heartbeat_ms", "fenced_brokers"}
    for version in ("3.3.2", "3.9.2", "4.0.0", "4.1.2"):
        names = {bean.name for bean in beans_for(version, [Role.BROKER, Role.CONTROLLER])}
        assert "handler_idle_ns" not in names
        assert shared <= names


def test_the_epoch_of_a_quorum_is_not_read_with_zookeeper() -> None:
    names = [{b.name for b in beans_for("3.8.1", BROKER, has_quorum=q)} for q in (True, False)]
    assert names[0] - names[1] == {"controller_epoch"}


def test_an_attribute_is_read_under_both_names_and_preferred_under_the_new_one() -> None:
    readings = readings_of(beans_for("2.8.2", BROKER))
    waits = [each.attribute for each in readings if each.name == "network_wait_ns"]
    assert waits == ["io-waittime-total", "io-wait-time-ns-total"]


def test_a_controller_alone_has_no_broker_beans() -> None:
    names = {bean.name for bean in beans_for("3.9.2", [Role.CONTROLLER])}
    assert "fenced_brokers" in names
    assert "handler_idle_ns" not in names
    assert "fenced_brokers" not in {bean.name for bean in beans_for("3.9.2", BROKER)}


def test_versions() -> None:
    versions = {
        "3.9.2": (3, 9),
        "4.10.0-SNAPSHOT": (4, 10),
        "7.9.1-ccs": (3, 9),
        "8.0.0-ce": (4, 0),
    }
    assert {text: parse_version(text) for text in versions} == versions
    with pytest.raises(ConfigError, match=r"'unknown' is not understood.*like 3\.9\.2"):
        parse_version("unknown")


def test_reading_names_are_unique_and_histograms_have_two() -> None:
    beans = beans_for("4.3.1", [Role.BROKER, Role.CONTROLLER])
    names = {reading.name for reading in readings_of(beans)}
    assert len({bean.name for bean in beans}) == len(beans)
    histograms = sum(bean.kind is Kind.HISTOGRAM for bean in beans)
    assert histograms == len(REQUESTS) * len(PHASES) + 2  # log flushes, the controller
    assert len(names) == len(beans) + histograms


def test_attributes_that_no_window_can_use_are_never_read() -> None:
    attributes = {reading.attribute for reading in readings_of(beans_for("3.9.2", BROKER))}
    assert not [a for a in attributes if re.search(r"Rate|Max|Min|Percentile|StdDev", a)]
