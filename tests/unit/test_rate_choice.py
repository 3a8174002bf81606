"""One-minute rates on the pages of exporters that show no counts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import pytest
from syrupy.assertion import SnapshotAssertion

from metrics.common.errors import ConfigError
from metrics.sources.beans import Role
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.rules import RuleSet, rule_set
from metrics.sources.sample import BrokerSample
from metrics.sources.source import Endpoint, NodeInfo
from metrics.windows.broker import BrokerWindow, broker_window
from tests.support.processes import PATIENCE_S
from tests.support.rate_pages import NAMES, POOL, RateExporter
from tests.support.served_exporter import serving

NAMED = rule_set(
    "named",
    {
        "uptime_ms": {"series": "process_start_time_seconds", "start_time": True},
        "leader_partitions": "kafka_server_replicamanager_leadercount",
        "handler_idle_ns": {"series": POOL, "one_minute_rate": True},
        **{name: {"series": series, "one_minute_rate": True} for name, series in NAMES.items()},
    },
)


def source_of(exporter: RateExporter, rules: RuleSet | None = None) -> PrometheusSource:
    """A source whose clock follows the broker."""
    endpoint = Endpoint(1, "127.0.0.1", exporter.port)
    return PrometheusSource(
        [endpoint], rules, PATIENCE_S, "4.1", lambda: exporter.now_s, pause=lambda _: None
    )


def loaded(
    exporter: RateExporter, rules: RuleSet | None = None, looks: int = 14, idle: float = 0.30
) -> tuple[NodeInfo, BrokerWindow, Mapping[str, float]]:
    """The node of an exporter, and the window of a load with its true rates in whole ticks."""
    with serving(exporter), closing(source_of(exporter, rules)) as source:
        source.open()
        exporter.idle, exporter.messages_per_s, exporter.every_s = idle, 9_000.0, 3.0
        for _ in range(3):
            source.sample_all()
        samples: list[BrokerSample] = []
        for _ in range(looks):
            samples += source.sample_all()
    assert [each.error for each in samples] == [None] * looks
    window = broker_window(samples, 1, samples[0].at_s, samples[-1].at_s, 3.0)
    ticks = round((window.ticked_s or 0.0) / 5)
    true = {
        name: sum(meter.counted[-ticks:]) / (5 * ticks) for name, meter in exporter.meters.items()
    }
    return source.nodes[1], window, true


@pytest.mark.parametrize(
    ("exporter", "rules"),
    [
        (RateExporter(""), None),
        (RateExporter("_total"), None),
        (RateExporter("_oneminuterate"), None),
        (RateExporter("_OneMinuteRate"), None),
        (RateExporter("_value"), None),
        (RateExporter(), NAMED),
        (RateExporter(up_s=0.0), None),  # a broker that has just started
        (RateExporter(idle_factor=100.0), None),  # a percentage
        (RateExporter("_oneminuterate", idle_factor=100.0), None),
    ],
)
def test_a_window_of_whole_ticks_is_that_of_the_counts(
    exporter: RateExporter, rules: RuleSet | None
) -> None:
    node, window, true = loaded(exporter, rules)
    assert 30 <= (window.ticked_s or 0) <= 35
    assert window.handler_idle == pytest.approx(true["idle"] / 1e9, rel=1e-9)
    assert window.handler_idle == pytest.approx(0.30, abs=0.01)
    assert window.handler_idle_rate_error in (None, 0.0)
    assert window.messages_in_per_s == pytest.approx(9_000, rel=0.02)
    assert window.bytes_in_per_s == pytest.approx(9_000 * 1_071, rel=0.02)
    assert window.isr_shrinks == 0
    assert rules or node.series["handler_idle_ns"].endswith("one-minute rate")
    assert not node.refused
    assert node.rates == ("bytes_in", "handler_idle_ns", "isr_shrinks", "messages_in")


def test_the_idle_time_of_a_controller_too_is_that_of_ticks() -> None:
    active = "kafka_controller_kafkacontroller_activecontrollercount 1.0\n"
    node, window, true = loaded(RateExporter("_oneminuterate", more=active), idle=1.3)
    assert node.roles == {Role.BROKER, Role.CONTROLLER}
    assert window.handler_idle_error == pytest.approx(0.05, rel=0.01)
    assert window.handler_idle == pytest.approx(true["idle"] / 1e9 - 1 + 0.05, abs=1e-6)
    assert window.ticked_s == pytest.approx(32, abs=3)


def test_rounded_rates_that_are_named_have_an_error() -> None:
    _, window, true = loaded(RateExporter("_oneminuterate", printed=lambda each: f"{each:.3f}"))
    assert window.handler_idle_rate_error is not None
    assert 0.001 < window.handler_idle_rate_error < 0.003
    assert abs((window.handler_idle or 0.0) - true["idle"] / 1e9) <= window.handler_idle_rate_error


OTHERS = {
    "five": RateExporter(minutes=5),
    "fifteen": RateExporter(minutes=15),
    "rounded": RateExporter(printed=lambda each: f"{each:.3f}"),
    "named five": RateExporter("_fiveminuterate", minutes=5),
    "named mean": RateExporter("_meanrate", minutes=5),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_averages_are_refused(name: str, snapshot: SnapshotAssertion) -> None:
    exporter = OTHERS[name]
    refused = pytest.raises(ConfigError)
    with serving(exporter), closing(source_of(exporter)) as source, refused as error:
        source.open()
    assert str(error.value).replace(str(exporter.port), "PORT") == snapshot


RATE_FIRST = {
    name: [{"series": f"{series}_oneminuterate", "one_minute_rate": True}, f"{series}_count"]
    for name, series in ({"handler_idle_ns": POOL} | NAMES).items()
}
BOTH = rule_set(
    "both", {"leader_partitions": "kafka_server_replicamanager_leadercount", **RATE_FIRST}
)


@pytest.mark.parametrize("rules", [None, BOTH], ids=["auto", "named"])
def test_a_count_wins_over_a_rate(rules: RuleSet | None) -> None:
    count = f"{POOL}_count 8.0E11\n{NAMES['bytes_in']}_count 4.0E9\n"
    exporter = RateExporter("_oneminuterate", more=count)
    with serving(exporter), closing(source_of(exporter, rules)) as source:
        source.open()
        (sample,) = source.sample_all()
    assert sample.values["handler_idle_ns"] == 8e11
    assert sample.values["bytes_in"] == 4e9
    assert "ticked_s:handler_idle_ns" not in sample.values
    assert source.nodes[1].rates == ("isr_shrinks", "messages_in")
