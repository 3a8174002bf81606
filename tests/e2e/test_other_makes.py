"""Brokers of another make than Kafka, judged by clients alone: commands end with an answer."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.commands import document_in, ended, finished
from tests.support.kfake import Kfake

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PLANTED_PER_S = 2_500.0
"""Records that all brokers take in together [records/s]."""
RATE_BYTES_PER_S, MESSAGE_BYTES = 31_250, 1_000
PLANTED_PRODUCERS = PLANTED_PER_S * MESSAGE_BYTES / RATE_BYTES_PER_S
NEAR = 0.05
"""Distance from the planted limit within which an answer is right [ratio]."""
PLACED = re.compile(
    r"the cluster chose the brokers of the replicas; (?P<partitions>\d+) partitions"
    r"(?: instead of (?P<planned>\d+) to balance leaders)?; "
    r"each broker leads (?:(?P<least>\d+) to )?(?P<most>\d+)"
)
BROKERS = 3
PLANNED = 10 * BROKERS
COMMAND_S = 800.0
MEMORY_MAX_BYTES = 3_000_000_000
"""More memory than brokers need that drop old records."""
LOAD = (
    "--workload=calibrated",
    f"--set=workload.message_bytes=[{MESSAGE_BYTES}]",
    f"--set=workload.producer.rate_bytes_per_s={RATE_BYTES_PER_S}",
    "--set=workload.topic.replication_factor=3",
    "--set=workload.topic.config.retention.bytes=1000000",
    "--set=workload.trial.warmup_s=1",
    "--set=workload.trial.measure_s=6",
)


@pytest.fixture(scope="module")
def brokers() -> Iterator[Kfake]:
    with Kfake(BROKERS, records_per_s=PLANTED_PER_S) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(brokers: Kfake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cluster file that `redline init` writes for these brokers."""
    folder = tmp_path_factory.mktemp("kfake")
    options = (f"--servers={brokers.bootstrap_servers}", "--protocol=PLAINTEXT", "--metrics=none")
    finished("init", "kfake.yaml", *options, folder=folder, deadline_s=COMMAND_S)
    return folder / "kfake.yaml"


def answer(folder: Path, *arguments: str) -> dict[str, Any]:
    """The summary of a run that ended well, with its caveat as docs/clusters.md has it."""
    text = finished(*arguments, "--yes", folder=folder, deadline_s=COMMAND_S)
    assert "unexpected" not in text
    summary: dict[str, Any] = document_in(folder)
    placed = PLACED.search(text)
    assert placed is not None, text
    log.warning("%s; caveat: %s", placed[0], summary["caveat"])
    partitions, most = int(placed["partitions"]), int(placed["most"])
    least = int(placed["least"] or most)
    assert int(placed["planned"] or partitions) == PLANNED
    mean = partitions / BROKERS
    is_even = least >= 0.9 * mean and most <= 1.1 * mean
    assert is_even or partitions == 10 * PLANNED
    assert ("leaders uneven" in summary["caveat"]) is not is_even
    return summary


def test_doctor_knows_brokers_of_another_make(cluster: Path, tmp_path: Path) -> None:
    code, text = ended(
        "doctor", f"--cluster={cluster}", *LOAD, folder=tmp_path, deadline_s=COMMAND_S
    )
    log.warning("%s", text)
    assert code == 0, text
    assert "unexpected" not in text


@pytest.mark.parametrize(
    ("share", "groups", "verdicts"),
    [(0.5, 1, {"SUSTAINED", "OVERLOADED"}), (2.0, 0, {"OVERLOADED"})],
    ids=["half of the limit, with a consumer group", "twice the limit"],
)
def test_traffic_ends_with_a_verdict(
    share: float, groups: int, verdicts: set[str], cluster: Path, tmp_path: Path
) -> None:
    load = f"--np={round(PLANTED_PRODUCERS * share)}"
    reads = f"--set=workload.consumers.groups={groups}"
    summary = answer(tmp_path, "traffic", f"--cluster={cluster}", load, reads, *LOAD)
    (trial,) = summary["trials"]
    log.warning("%g of the limit: %s, %s", share, trial["verdict"], trial["reasons"])
    assert trial["verdict"] in verdicts


def test_find_limit_finds_the_planted_limit(brokers: Kfake, cluster: Path, tmp_path: Path) -> None:
    exact = "--set=goal.search.resolution=0.02"
    summary = answer(tmp_path, "find-limit", f"--cluster={cluster}", exact, *LOAD)
    (point,) = summary["boundaries"]
    used_bytes = psutil.Process(brokers.pid).memory_info().rss
    log.warning(
        "planted %.1f producers, found %s, trials %s, reasons %s, %.0f MB of memory",
        PLANTED_PRODUCERS,
        point["np_sustained"],
        point["trials"],
        point["overload_reasons"],
        used_bytes / 1e6,
    )
    assert not point["gave_up"]
    assert abs(point["np_sustained"] / PLANTED_PRODUCERS - 1.0) <= NEAR
    assert used_bytes < MEMORY_MAX_BYTES
