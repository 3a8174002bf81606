"""`redline learn` on real brokers: four kinds of traffic by Java producers, and its cost."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from jobs.cluster.connect import connect
from jobs.config.loading import load_workload
from jobs.config.workload import Workload
from jobs.console.events import RecordingReporter
from jobs.features.learn.learning import LearnOrder, learn
from jobs.features.learn.reading import matching_topics
from jobs.features.learn.survey import Bounds, Surveyor
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from tests.support.java_traffic import JavaKind
from tests.support.original_traffic import GROUPS, PLAIN, WORD, original_traffic
from tests.support.original_traffic import KINDS as ORIGINALS
from tests.support.scripted_admin import FakeTime

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

KINDS = {
    "small-hot": JavaKind(4, 250, 200, properties={**PLAIN, "linger.ms": "20"}),
    "large": JavaKind(
        2, 20, 5_000, properties={**PLAIN, "compression.type": "lz4", "linger.ms": "200",
                                  "batch.size": "131072"},
    ),
    "keyed": JavaKind(3, 60, 500, keys=50, properties={"linger.ms": "100"}),
    "many-slow": JavaKind(40, 1, 1_000, properties={"linger.ms": "5"}),
}  # fmt: skip
LOADED_S = 75.0
"""Time for which producers send before their traffic is learnt [s]."""
READ_S = 30.0
"""Time of reading, at most [s]."""


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    overrides: dict[str, object] = {"heap_mb": 384, "jvm_options": "-XX:TieredStopAtLevel=1"}
    with start("default", brokers=3, overrides=overrides, name="learn") as running:
        yield running


def learnt(testbed: Testbed, folder: Path, **options: Any) -> dict[str, Any]:
    out = folder / "mine.yaml"
    order = LearnOrder(
        str(cluster_file(testbed.folder)), (".*",), out, moment="now", parts_max=6, **options
    )
    assert learn(order, RecordingReporter()) == 0
    found: dict[str, Any] = json.loads((folder / "mine.learned.json").read_text(encoding="utf-8"))
    return found


def test_learnt_figures_are_those_of_java_producers(testbed: Testbed, tmp_path: Path) -> None:
    with original_traffic(testbed, tmp_path, KINDS) as traffic:
        time.sleep(LOADED_S)
        for decodes in (False, True):
            folder = tmp_path / f"decoded-{decodes}"
            folder.mkdir()
            found = learnt(testbed, folder, bounds=Bounds(duration_s=READ_S, decodes=decodes))
            planted = {topic: traffic.batch_bytes_of_last_minute(topic) for topic in KINDS}
            workload = load_workload(str(folder / "mine.yaml"))
            assert {part.name for part in workload.parts} == set(KINDS)
            for part in workload.parts:
                log_figures(part, found, planted[part.name])
            for part in workload.parts:
                require_as_planted(part, found, planted[part.name])
            require_kept_nowhere(folder)


def evidence_of(part: Workload, found: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was learnt of a part, and of its topic."""
    (evidence,) = [each for each in found["parts"] if each["name"] == part.name]
    (topic,) = evidence["topics"]
    return evidence, topic


def log_figures(part: Workload, found: dict[str, Any], planted_batch_bytes: float) -> None:
    kind, (evidence, topic) = KINDS[part.name], evidence_of(part, found)
    log.warning(
        "%s: %.1f of %.1f messages/s, %d B, %.2f a batch, %.0f of %.0f B a batch, %s of %d "
        "producers (%g to %g), linger %g ms",
        *(part.name, evidence["messages_per_s"], kind.per_s, part.message_bytes[0]),
        *(evidence["records_per_batch"], topic["bytes"] / topic["batches"], planted_batch_bytes),
        *(part.np, kind.producers, evidence["producers"]["low"], evidence["producers"]["high"]),
        part.producer.linger_ms,
    )


def require_as_planted(part: Workload, found: dict[str, Any], planted_batch_bytes: float) -> None:
    kind, (evidence, topic) = KINDS[part.name], evidence_of(part, found)
    rate, size = evidence["messages_per_s"], part.message_bytes[0]
    batch_bytes = topic["bytes"] / topic["batches"]
    assert rate == pytest.approx(kind.per_s, rel=0.05)
    # How many messages a batch gets follows from the machine, too, and the two windows differ.
    assert batch_bytes == pytest.approx(planted_batch_bytes, rel=0.1)
    assert part.producer.compression == kind.properties.get("compression.type", "none")
    is_plain = kind.properties.get("enable.idempotence") == "false"
    assert part.producer.enable_idempotence is not is_plain
    if is_plain:
        assert topic["producer_ids"] == 0
        assert evidence["producers"]["low"] <= kind.producers <= evidence["producers"]["high"]
        assert part.np is not None and abs(part.np - kind.producers) <= 1
    else:
        assert part.np == kind.producers
    if found["read"]["decoded"] or part.producer.compression == "none":
        assert size == pytest.approx(kind.value_bytes + (6 if kind.keys else 0), rel=0.05)
    assert topic["fan_out"] == (len(GROUPS) if part.name == "small-hot" else 0)
    if found["read"]["decoded"]:
        decoded = topic["decoded"]
        assert decoded["keys_seen"] == kind.keys
        assert decoded["value_bytes"] == pytest.approx(kind.value_bytes, rel=0.01)
        if part.producer.compression == "lz4":
            assert 1.8 < decoded["compression_ratio"] < 2.1


def require_kept_nowhere(folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            assert WORD.encode() not in file.read_bytes(), file


WARM_S = 60.0
"""Time for which producers send before their traffic is learnt [s]."""
COST_S = 15.0
"""Time in which surveys are repeated, and before and after it without them [s]."""
CORES_MAX = 0.01


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Brokers with four kinds of traffic."""
    folder = tmp_path_factory.mktemp("production")
    with (
        start("calibrated", brokers=3, overrides={"heap_mb": 384}, name="cost") as testbed,
        original_traffic(testbed, folder),
    ):
        time.sleep(WARM_S)
        yield testbed


def cpu_s(testbed: Testbed) -> float:
    """CPU time of all brokers so far [s]."""
    times = [psutil.Process(testbed.pids[each]).cpu_times() for each in testbed.broker_ids]
    return sum(each.user + each.system for each in times)


def cores_for(testbed: Testbed, duration_s: float) -> float:
    """CPU time of all brokers in a second of the next seconds [cores]."""
    began_s, began_cpu_s = time.monotonic(), cpu_s(testbed)
    time.sleep(duration_s)
    return (cpu_s(testbed) - began_cpu_s) / (time.monotonic() - began_s)


@pytest.mark.timeout(600)
def test_learning_costs_loaded_brokers_less_than_a_hundredth_of_a_core(production: Testbed) -> None:
    """Surveys follow one another without pauses, as a single one is lost in the load's noise.

    The time over which a survey is spread is that of its own clock.
    """
    before = cores_for(production, COST_S)
    with connect(production.bootstrap_servers) as admin:
        topics = matching_topics(admin, tuple(ORIGINALS))
        began_s, began_cpu_s = time.monotonic(), cpu_s(production)
        spread_s, read_bytes, surveys = 0.0, 0, 0
        while time.monotonic() < began_s + COST_S:
            clock = FakeTime()
            survey = Surveyor(admin, topics, Bounds(), clock=clock, pause=clock.pause).make()
            surveys += 1
            spread_s += survey.took_s
            read_bytes += survey.bytes_read
        took_s, used_s = time.monotonic() - began_s, cpu_s(production) - began_cpu_s
    after = cores_for(production, COST_S)
    cost_s = used_s - (before + after) / 2 * took_s
    log.warning(
        "%.4f cores before, %.4f with %d surveys of %.1f MB, %.4f after: %.3f s of CPU time for a "
        "survey of %.1f s",
        *(before, used_s / took_s, surveys, read_bytes / surveys / 1e6, after, cost_s / surveys),
        spread_s / surveys,
    )
    assert cost_s / spread_s < CORES_MAX
