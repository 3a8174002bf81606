"""The limits that `redline find-limit` finds, compared with those planted in real brokers."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest

from jobs.config.yaml_file import parse_map
from tests.bench.planted import KINDS, NEAR, SIZES, measure
from tests.support.commands import document_in, finished

pytestmark = pytest.mark.long
log = logging.getLogger(__name__)

CLUSTERS = {
    "2.8.2 with ZooKeeper": ("kafka_version=2.8.2",),
    "3.3.2 with ZooKeeper": ("kafka_version=3.3.2",),
    "3.6.2 with ZooKeeper": ("kafka_version=3.6.2",),
    "3.9.2 with ZooKeeper": ("kafka_version=3.9.2", "metadata=zookeeper"),
    "3.9.2 combined": ("kafka_version=3.9.2", "metadata=combined"),
    "4.1.2 combined": ("kafka_version=4.1.2", "metadata=combined"),
    "4.3.1": ("kafka_version=4.3.1",),
    "3.9.2 and 4.1.2": ("kafka_version=3.9.2", "kafka_versions=3: 4.1.2"),
}
"""Releases and roles of Kafka in use → keys of the testbed."""


@pytest.mark.timeout(3600)
def test_95_percent_of_the_answers_lie_within_5_percent_of_the_planted_limit() -> None:
    kind = KINDS["handlers"]
    points = [point for value in kind.values for point in measure("handlers", value, 1)]
    for point in points:
        log.warning("%s: off by %+.1f %%", point, 100.0 * point.off_by)
    expected = len(kind.values) * SIZES
    assert len(points) == expected
    assert sum(point.is_right for point in points) >= kind.share * expected


@pytest.mark.timeout(900)
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_planted_limit_is_found_on_each_release(cluster: str) -> None:
    options = [f"--set=cluster.testbed.{each}" for each in CLUSTERS[cluster]]
    (point,) = measure("handlers", "60", 1, "--set=workload.message_bytes=[1000]", *options)
    log.warning("%s: %s: off by %+.1f %%", cluster, point, 100.0 * point.off_by)
    assert abs(point.off_by) <= NEAR


FIXED = Path(__file__).parents[1] / "data" / "mixes" / "calibrated.yaml"
RUN_S = 600.0


def drawn(seed: int) -> dict[str, Any]:
    """A mix of three parts that are drawn at random, each with full batches."""
    made = parse_map(FIXED.read_text(encoding="utf-8"), "the mix").data
    chance = random.Random(seed)
    for part in made["mix"].values():
        part["producers"] = chance.randint(2, 14)
        part["message_bytes"] = chance.choice([100, 200, 500, 1_000, 2_000, 4_000])
        rate = chance.choice([31_250, 40_000, 62_500])
        part["producer"] = {**part["producer"], "rate_bytes_per_s": rate}
        part["topic"] = {**part["topic"], "partitions_per_broker": chance.randint(2, 10)}
    return made


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [None, 7], ids=["fixed", "drawn"])
def test_the_limit_of_a_mix_is_within_5_percent_of_the_planted_one(
    seed: int | None, tmp_path: Path
) -> None:
    workload = FIXED
    if seed is not None:
        workload = tmp_path / "drawn.yaml"
        workload.write_text(json.dumps(drawn(seed)), encoding="utf-8")
    options = (
        "find-limit",
        "--cluster=calibrated",
        f"--workload={workload}",
        "--set=goal.search.resolution=0.02",
        "--set=goal.search.steady_s=0",
        "--yes",
    )
    text = finished(*options, folder=tmp_path, deadline_s=RUN_S)
    (boundary,) = document_in(tmp_path)["boundaries"]
    planted, found = boundary["scale_planted"], boundary["scale_sustained"]
    log.warning(
        "planted %.3f, found %.2f (%+.1f %%), estimate %s, %d trials, bound by %s",
        *(planted, found, 100 * (found / planted - 1), boundary["scale_estimate"]),
        *(boundary["trials"], boundary["limited_by"]),
    )
    assert boundary["axis"] == "scale"
    assert abs(found / planted - 1) <= NEAR
    assert boundary["limited_by"] == "request handlers"
    assert [each["part"] for each in boundary["parts"]] == ["small", "middle", "large"]
    assert sum(each["mb_per_s"] for each in boundary["parts"]) == pytest.approx(
        boundary["mb_per_s"]
    )
    assert f"{found:g} times the mix" in text
