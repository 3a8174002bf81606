"""Brokers with Kafka's defaults: a search ends with a limit or a lower bound."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.config.yaml_file import yaml_text
from jobs.testbed.launcher import start
from jobs.testbed.profile import load_profile
from tests.support.commands import document_in, finished

log = logging.getLogger(__name__)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    """The file of a cluster of two brokers and a controller with Kafka's defaults."""
    untuned = {"broker": {}, "disk_limit_bytes": 40_000_000_000}
    profile = load_profile("default").model_copy(update=untuned)
    with start(profile, brokers=2, root=tmp_path / "bed", name="untuned") as testbed:
        described = {
            "description": "two brokers with Kafka's defaults",
            "bootstrap_servers": list(testbed.bootstrap_servers),
            "jmx": {"endpoints": testbed.jmx_endpoints},
        }
        file = tmp_path / "untuned.yaml"
        file.write_text(yaml_text(described))
        yield file


def seconds_in(pattern: str, output: str) -> float:
    """The time, such as `3 min 56 s`, that is the group of a pattern [s]."""
    found = re.search(pattern, output)
    assert found is not None, output
    parts = re.findall(r"(\d+) (h|min|s)\b", found[1])
    return float(sum(int(count) * {"h": 3600, "min": 60, "s": 1}[unit] for count, unit in parts))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_search_of_untuned_brokers_has_an_answer(cluster: Path, tmp_path: Path) -> None:
    output = finished(
        "find-limit", f"--cluster={cluster}", "--workload=1kB", "--yes",
        "--set=workload.topic.replication_factor=1", "--set=goal.search.accept_lower_bound=true",
        folder=tmp_path, deadline_s=1_100.0,
    )  # fmt: skip
    (found,) = document_in(tmp_path)["boundaries"]
    assert found["answer_kind"] in ("limit", "lower bound")
    assert found["answer_mb_per_s"] > 0
    log.warning("%s", output)
    forecast_s = seconds_in(r'forecast="[^"]*?, ([^,"]*) with', output)
    took_s = seconds_in(r'run-finished .*took="([^"]*)"', output)
    log.warning("took %.0f s of a forecast of %.0f s", took_s, forecast_s)
    assert took_s <= 1.5 * forecast_s
