"""A faithful copy: what is learnt from Kafka's own Java producers loads brokers as they do."""

from __future__ import annotations

import json
import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.connect import connect
from jobs.config import load
from jobs.console.events import RecordingReporter
from jobs.features.learn.learning import LearnOrder, learn
from jobs.features.learn.survey import Bounds
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from jobs.testbed.places import NodeFiles
from metrics.judging.thresholds import Thresholds
from metrics.sources.jmx import open_jmx
from metrics.sources.source import MetricsSource
from metrics.trial.evidence import Judgement
from search.model import Verdict
from tests.support.commands import ROOT, document_in, finished
from tests.support.engine_bench import end_offsets_of
from tests.support.java_traffic import JavaTraffic, java_traffic
from tests.support.loaded_brokers import judged_writes
from tests.support.original_traffic import KINDS, PARTITIONS, WORD, original_traffic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

STATED_MS = 32.0
LOADED_S = 150.0
"""Time for which producers send before their traffic is learnt [s]."""
READ_S = 30.0
"""Time for which their traffic is read, at most [s]."""
TURNS = 5
BATCH_SIZES = {"small-hot": 4_096, "large": 32_768, "many-slow": 2_048}
"""Sizes of batches, after which a producer takes another partition [B]. Headers do not show them;
the owner of the traffic knows them. By Kafka's default a window has so few changes that the shares
of brokers are chance."""
ORIGINALS = KINDS | {
    topic: replace(KINDS[topic], properties={**KINDS[topic].properties, "batch.size": str(size)})
    for topic, size in BATCH_SIZES.items()
}
KNOWN = tuple(
    f"workload.mix.{topic}.producer.batch_size={size}" for topic, size in BATCH_SIZES.items()
)
NEAR = 0.10
STARTED_S, JUDGED_S = 40.0, 25.0
"""Time from the start of the originals at a scale until they are judged, and for which [s]."""
SEARCH = (
    "--set=cluster.warm_up_max_s=0",
    "--set=workload.trial.warmup_s=3",
    "--set=workload.trial.measure_s=22",
    "--set=goal.guards.canary_p99_ms_max=null",
    "--set=goal.search.resolution=0.05",
    "--set=goal.search.steady_s=0",
    "--set=goal.search.check_for_change=false",
    "--yes",
)
SEARCH_S = 600.0


@dataclass
class Copied:
    """Production, and the workload that was learnt from it."""

    testbed: Testbed
    original: JavaTraffic
    workload: Path

    @property
    def cluster(self) -> str:
        return str(cluster_file(self.testbed.folder))


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copied]:
    """Producers that send, and what was learnt of them."""
    overrides: dict[str, object] = {"produce_handler_ms": STATED_MS, "heap_mb": 384}
    folder = tmp_path_factory.mktemp("copy")
    with (
        start("calibrated", brokers=3, overrides=overrides, name="copy") as testbed,
        original_traffic(testbed, folder, ORIGINALS) as original,
    ):
        found = Copied(testbed, original, folder / "mine.yaml")
        time.sleep(LOADED_S)
        order = LearnOrder(
            found.cluster, (".*",), found.workload, Bounds(duration_s=READ_S), "now", 6
        )
        assert learn(order, RecordingReporter()) == 0
        log.warning("%s", found.workload.read_text(encoding="utf-8"))
        yield found


def test_a_copy_loads_each_broker_as_the_original_does(copied: Copied, tmp_path: Path) -> None:
    turns = turns_of(copied, tmp_path)
    far = {}
    for broker in copied.testbed.broker_ids:
        for name in ("requests_per_s", "batches_per_s", "bytes_per_s", "busy"):
            original, copy = (
                statistics.median(turn[side][str(broker)][name] for turn in turns)
                for side in ("original", "copy")
            )
            log.warning(
                "broker %d, %s: %.4g original, %.4g copy (%+.1f %%)",
                *(broker, name, original, copy, 100 * (copy / original - 1)),
            )
            if abs(copy / original - 1) > NEAR:
                far[broker, name] = copy / original
    assert not far


def turns_of(copied: Copied, folder: Path) -> list[dict[str, Any]]:
    """The loads of original and copy in each turn, see `tests.support.copy_turns`."""
    data = {i: str(NodeFiles(node).data) for i, node in copied.testbed.brokers.items()}
    arguments = (
        copied.cluster, str(copied.workload), str(folder), str(TURNS), ",".join(KINDS),
        json.dumps(data), *KNOWN,
    )  # fmt: skip
    copied.original.pause()
    answer = ""
    with (
        (folder / "errors.log").open("wb") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.copy_turns", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            answer = line.strip()
            if answer == "resume":
                copied.original.resume()
            elif answer == "pause":
                copied.original.pause()
            else:
                log.warning("%s", answer)
    assert process.returncode == 0, (folder / "errors.log").read_text(errors="replace")[-3_000:]
    found: list[dict[str, Any]] = json.loads(answer)
    return found


def judged(
    copied: Copied, source: MetricsSource, scale: float, thresholds: Thresholds, folder: Path
) -> Judgement:
    kinds = {topic: kind.scaled(scale) for topic, kind in ORIGINALS.items()}
    per_s = sum(kind.per_s for kind in kinds.values())
    size = sum(kind.per_s * kind.value_bytes for kind in kinds.values()) / per_s
    with (
        connect(copied.testbed.bootstrap_servers) as admin,
        java_traffic(copied.testbed, kinds, WORD, folder / f"errors-{scale:.2f}.log"),
    ):
        time.sleep(STARTED_S)
        outcome = judged_writes(
            source, partial(records_in, admin), per_s, round(size), JUDGED_S, thresholds
        )
    evidence, found = outcome.evidence, outcome.judgement
    log.warning(
        "originals at %.3f: idle %s, %d of %d records, %s: %s",
        *(scale, [f"{each.handler_idle:.3f}" for each in evidence.brokers]),
        *(evidence.client.counts.acked_records, evidence.client.counts.offered_records),
        *(found.verdict, [each.text for each in found.reasons]),
    )
    return found


def records_in(admin: KafkaAdmin) -> int:
    """Records that were written to the topics of the originals so far."""
    return sum(sum(end_offsets_of(admin, topic, range(PARTITIONS)).values()) for topic in KINDS)


def test_originals_get_the_verdict_of_the_copy_below_and_above_its_limit(
    copied: Copied, tmp_path: Path, spark: SparkSession
) -> None:
    copied.original.pause()
    known = (f"--set={each}" for each in KNOWN)
    options = ("find-limit", f"--cluster={copied.cluster}", f"--workload={copied.workload}", *known)
    finished(*options, *SEARCH, folder=tmp_path, deadline_s=SEARCH_S)
    (point,) = document_in(tmp_path)["boundaries"]
    scale = point["scale_estimate"] or point["scale_sustained"]
    log.warning(
        "scale %.2f sustained, %.3f estimated, %d trials, bound by %s",
        *(point["scale_sustained"], scale, point["trials"], point["limited_by"]),
    )
    goal = load(copied.cluster, str(copied.workload), "default").goal
    thresholds = Thresholds(goal.indicators, goal.validity)
    with closing(open_jmx(copied.testbed.jmx_endpoints, spark._jvm, 10.0)) as source:
        below = judged(copied, source, 0.9 * scale, thresholds, tmp_path)
        above = judged(copied, source, 1.1 * scale, thresholds, tmp_path)
    assert below.verdict is Verdict.SUSTAINED, below.reasons
    assert above.verdict is Verdict.OVERLOADED
    assert above.reasons[0].indicator == "request_handler_idle"
