"""`redline export`: a limit as files for other tools."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML
from syrupy.assertion import SnapshotAssertion

from jobs.config.files import names_in
from jobs.config.metrics_registry import load_rules
from jobs.plan import export
from metrics.common.errors import ConfigError
from metrics.reporting.summary import RunSummary, write_summary
from metrics.tables.boundary import make_boundary
from metrics.traffic.axes import NP
from search.model import Bracket
from tests.support.rows import traffic

LARGE = replace(
    make_boundary(Bracket(720, 756), NP, traffic(1, 1_000, 250.0, brokers=3), trials=4),
    goal="strict",
    load_low=600.0,
    load_high=750.0,
    interval_max=0.3,
)
"""180 MB/s at 1 kB on three brokers, 150 MB/s at its lower end."""
LOW = 48.77
"""What a broker carries of it on any day [MB/s]."""
SMALL = replace(
    make_boundary(Bracket(900, 940), NP, traffic(1, 100, 1_000.0, brokers=3), trials=4),
    goal="strict",
)
"""90 MB/s at 100 B, the lower limit in bytes."""
SUMMARY = RunSummary(
    "run-1", "a", "b", "c", "w", "strict", (SMALL, LARGE), 3,
    caveat="a small cluster", replication_factor=3, consumer_groups=2,
)  # fmt: skip
SIZE = ("--message-bytes", "1000")


def exported(folder: Path, *options: str, summary: RunSummary = SUMMARY) -> str:
    write_summary(summary, folder / "run-1" / "summary.json")
    command = ["run-1", "--out", str(folder), *options]
    done = CliRunner().invoke(export, command, standalone_mode=False, catch_exceptions=False)
    return done.output


def test_capacities_count_replicas_and_groups(tmp_path: Path) -> None:
    text = exported(tmp_path, "--as", "capacity", "--disk-mb", "500000", "--safety", "0.5", *SIZE)
    (broker,) = json.loads(text)["brokerCapacities"]
    assert broker["brokerId"] == "-1"
    led_kb = 1_000 * LOW * 0.5  # the lower end, a third on each broker
    found = {name: float(value) for name, value in broker["capacity"].items()}
    assert found["NW_IN"] == pytest.approx(3 * led_kb, rel=0.015)
    assert found["NW_OUT"] == pytest.approx((2 + 2) * led_kb, rel=0.015)
    assert (found["DISK"], found["CPU"]) == (500_000, 100)
    assert "run-1" in broker["doc"] and "a small cluster" in broker["doc"]
    with pytest.raises(ConfigError, match=r"add --disk-mb MB"):
        exported(tmp_path, "--as", "capacity")


def test_tenants_share_a_broker(tmp_path: Path) -> None:
    options = ("--as", "quotas", "--tenants", "4", "--bootstrap-server", "kafka:9092", *SIZE)
    text = exported(tmp_path, *options)
    found = re.search(r"producer_byte_rate=(\d+),consumer_byte_rate=(\d+)", text)
    assert found is not None
    assert int(found[1]) == pytest.approx(1e6 * LOW * 0.7 / 4, rel=0.015)
    assert int(found[2]) == pytest.approx(2 * int(found[1]), abs=2)
    assert "--bootstrap-server kafka:9092 " in text
    plain = replace(SUMMARY, consumer_groups=0)
    assert "consumer_byte_rate" not in exported(tmp_path, *options, summary=plain)


@pytest.mark.parametrize("rules", names_in("prometheus"))
def test_alerts_use_series_of_the_exporter(tmp_path: Path, rules: str) -> None:
    text = exported(tmp_path, "--as", "alerts", "--rules", rules, *SIZE)
    (group,) = YAML(typ="safe").load(text)["groups"]
    written, idle, *headroom, low = group["rules"]
    assert _headroom_of(headroom, {"idle": 0.75, "bytes": 25e6}) == pytest.approx(
        {"request handlers": 2.4, "measured traffic": 2.0}, rel=0.02
    )
    assert low["expr"] == "min by (instance) (redline:headroom_times) < 1.5"
    assert float(written["expr"].rpartition(" > ")[2]) == pytest.approx(1e6 * LOW * 0.7, rel=0.015)
    assert idle["expr"].endswith("/ 1e9 < 0.4"), "the goal's own threshold"
    for rule, reading in ((written, "bytes_in"), (idle, "handler_idle_ns")):
        assert _names(rule, load_rules(rules).selectors[reading][0]), rule["expr"]
        assert "run-1" in rule["annotations"]["description"]


def test_an_alert_by_a_one_minute_rate_takes_it_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "rates.yaml"
    file.write_text(
        "readings:\n"
        "  bytes_in: {series: in_rate, one_minute_rate: true}\n"
        "  handler_idle_ns: {series: idle_percent, factor: 0.01, one_minute_rate: true}\n"
    )
    options = ("--rules", str(file), "--headroom", "2.5")
    text = exported(tmp_path, "--as", "alerts", *options, *SIZE)
    (group,) = YAML(typ="safe").load(text)["groups"]
    written, idle, *_, low = (each["expr"] for each in group["rules"])
    assert low.endswith(" < 2.5")
    assert "at least 2.5 times" in group["rules"][-1]["annotations"]["summary"]
    assert 'sum by (instance) ({__name__=~"in_rate(_total)?",topic=""} * 1) > ' in written
    assert '({__name__=~"idle_percent(_total)?"} * 1e+07) / 1e9 < 0.4' in idle


def _headroom_of(rules: list[dict[str, Any]], now: dict[str, float]) -> dict[str, float]:
    """What the recording rules give for a broker with this idle fraction and these bytes/s."""
    found = {}
    for rule in rules:
        assert rule["record"] == "redline:headroom_times"
        text = re.sub(r"1 - max by \(instance\) \(.*\) / 1e9", f"{1 - now['idle']}", rule["expr"])
        text = re.sub(r"sum by \(instance\) \(.*\)(?=, )", f"{now['bytes']}", text)
        limit, used, least = re.fullmatch(  # type: ignore[union-attr]
            r"(\S+) / clamp_min\((\S+), (\S+) / 1000\)", text
        ).groups()
        assert limit == least
        found[rule["labels"]["resource"]] = float(limit) / float(used)
    return found


def _names(rule: dict[str, Any], selector: Any) -> bool:
    """Whether an expression matches a selector's series, as both releases name it."""
    pattern = re.search(r'__name__=~"([^"]+)"', rule["expr"])
    assert pattern is not None
    names = (selector.name, f"{selector.name}_total")
    labels = all(f'{name}="{value}"' in rule["expr"] for name, value in selector.labels.items())
    return labels and all(re.fullmatch(pattern[1], name) for name in names)


def test_an_export_is_written_to_a_file(tmp_path: Path) -> None:
    file = tmp_path / "alerts.yaml"
    assert exported(tmp_path, "--as", "alerts", "--to", str(file)) == ""
    assert "KafkaBrokerNearItsLimit" in file.read_text()
    assert "of 100 B messages" in exported(tmp_path, "--as", "quotas"), "lowest in bytes"


def test_a_doubtful_limit_is_not_exported(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    summary = replace(SUMMARY, boundaries=(replace(LARGE, interval_max=0.1),))
    with pytest.raises(ConfigError) as error:
        exported(tmp_path, "--as", "quotas", summary=summary)
    assert str(error.value) == snapshot
    command = ["run-2", "--as", "quotas", "--out", str(tmp_path)]
    with pytest.raises(ConfigError, match=r"run-2/summary\.json .*--out"):
        CliRunner().invoke(export, command, standalone_mode=False, catch_exceptions=False)
