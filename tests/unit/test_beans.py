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


@pytest.mark.parametrize(
    ("version", "roles", "bean"),
    [
        ("3.9.2", BROKER, "RequestHandlerAvgIdlePercent"),
        ("4.1.2", BROKER, "RequestHandlerAvgIdlePercent"),
        ("4.2.0", BROKER, "BrokerRequestHandlerAvgIdlePercent"),
        ("4.3.1", [Role.BROKER, Role.CONTROLLER], "BrokerRequestHandlerAvgIdlePercent"),
        ("10.0", BROKER, "BrokerRequestHandlerAvgIdlePercent"),
    ],
)
def test_the_handlers_bean_follows_the_version(version: str, roles: list[Role], bean: str) -> None:
    (found,) = (b for b in beans_for(1, version, roles) if b.name == "handler_idle_ns")
    assert found.object_name == f"kafka.server:type=KafkaRequestHandlerPool,name={bean}"


@pytest.mark.parametrize("version", ["3.9.2", "4.0.0", "4.1.2"])
def test_combined_mode_before_4_2_is_refused_with_the_remedy(version: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"broker 7 runs Kafka {version} as broker and contr.*4\.2"
    ):
        beans_for(7, version, [Role.BROKER, Role.CONTROLLER])


def test_a_controller_alone_has_no_broker_beans() -> None:
    names = {bean.name for bean in beans_for(100, "3.9.2", [Role.CONTROLLER])}
    assert "fenced_brokers" in names
    assert "handler_idle_ns" not in names
    assert "fenced_brokers" not in {bean.name for bean in beans_for(1, "3.9.2", BROKER)}


@pytest.mark.parametrize(
    ("text", "version"),
    [("3.9.2", (3, 9)), ("4.10.0-SNAPSHOT", (4, 10)), ("7.9.1-ccs", (3, 9)), ("8.0.0-ce", (4, 0))],
)
def test_versions(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


def test_an_unreadable_version_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"'unknown' is not understood.*like 3\.9\.2"):
        parse_version("unknown")


def test_reading_names_are_unique_and_histograms_have_two() -> None:
    beans = beans_for(1, "4.3.1", [Role.BROKER, Role.CONTROLLER])
    names = [reading.name for reading in readings_of(beans)]
    assert len(names) == len(set(names))
    histograms = sum(bean.kind is Kind.HISTOGRAM for bean in beans)
    assert histograms == len(REQUESTS) * len(PHASES) + 1
    assert len(names) == len(beans) + histograms


def test_what_does_not_belong_to_a_window_is_never_read() -> None:
    attributes = {reading.attribute for reading in readings_of(beans_for(1, "3.9.2", BROKER))}
    assert not [a for a in attributes if re.search(r"Rate|Max|Min|Percentile|StdDev", a)]
