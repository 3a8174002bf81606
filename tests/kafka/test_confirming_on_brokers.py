"""Confirmation of a limit on real brokers: it lasts, or a change during the load ends it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka.admin import ConfigResourceType

from jobs.config import Configuration, load
from jobs.console.events import Event, TrialStarted
from jobs.runs.estimate import line_of
from jobs.runs.resumption import replay
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from metrics.tables.store import TableStore
from search.model import Verdict
from tests.support.loaded_brokers import LoadedBrokers, loaded
from tests.support.runs import LoggingReporter, limits_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

HANDLERS = 2
STATED_MS = 20.0
RATE_BYTES_PER_S = 62_500
PRODUCER_PER_S = RATE_BYTES_PER_S / 16_384
PLANTED = 0.8 * HANDLERS * 1000.0 / STATED_MS / PRODUCER_PER_S
"""The limit if requests took only the stated time: 21, or half with one handler [producers]."""
OWN_SHARE_MAX = 0.15
"""Largest further time of a request on a busy machine."""


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    overrides: dict[str, object] = {"produce_handler_ms": STATED_MS, "num.io.threads": HANDLERS}
    with start("calibrated", brokers=1, overrides=overrides, name="lasting") as running:
        yield running


@pytest.fixture
def brokers(testbed: Testbed, spark: SparkSession) -> Iterator[LoadedBrokers]:
    with loaded(testbed, spark._jvm) as under_load:
        yield under_load
        set_handlers(under_load, HANDLERS)


def set_handlers(brokers: LoadedBrokers, count: int) -> None:
    brokers.alter(ConfigResourceType.BROKER, "1", {"num.io.threads": f"{count}"})


@pytest.fixture
def config(testbed: Testbed) -> Configuration:
    """Six windows of 5 s at each limit."""
    short = (
        "cluster.warm_up_max_s=20",
        "workload.message_bytes=[1000]",
        f"workload.producer.rate_bytes_per_s={RATE_BYTES_PER_S}",
        "workload.trial.warmup_s=1",
        "workload.trial.measure_s=4",
        "goal.search.load_start_max=32",
        "goal.search.resolution=0.1",
        "goal.search.confirm_s=30",
        "goal.search.steady_s=0",
    )
    return load(str(cluster_file(testbed.folder)), "calibrated", "default", short)


class InterveningReporter(LoggingReporter):
    """A reporter that calls an action before the load of the trial whose reason has these words."""

    def __init__(self, words: str, action: Callable[[], None]) -> None:
        super().__init__()
        self._words = words
        self._action = action
        self.reasons: list[str] = []

    def report(self, event: Event) -> None:
        super().report(event)
        if isinstance(event, TrialStarted):
            self.reasons.append(event.reason)
            if self._words in event.reason:
                self._words = "\0"
                self._action()


def measured(config: Configuration, reporter: InterveningReporter, folder: Path) -> dict[str, Any]:
    """Make a run, and return its only boundary."""
    (point,) = limits_of(config, folder, "held", reporter)
    log.warning("%s", {name: point[name] for name in ("np_sustained", "confirmed_s", "notes")})
    return point


def lies_near(producers: int, planted: float) -> bool:
    return (1.0 - OWN_SHARE_MAX) * planted - 1 <= producers <= 1.05 * planted + 1


def test_a_limit_that_does_not_last_is_named_and_found_again_below(
    brokers: LoadedBrokers, config: Configuration, tmp_path: Path, spark: SparkSession
) -> None:
    reporter = InterveningReporter("window 3 of 6", lambda: set_handlers(brokers, HANDLERS // 2))
    point = measured(config, reporter, tmp_path)
    assert point["confirmed_s"] == 30.0
    assert lies_near(point["np_sustained"], PLANTED / 2)
    trials = TableStore(spark, str(tmp_path / "tables")).trials_of("held")
    held = [trial for trial in trials if trial.held]
    failed = held[0].load
    assert lies_near(failed, PLANTED)
    assert [trial.verdict for trial in held[:5]] == [Verdict.SUSTAINED] * 2 + [
        Verdict.OVERLOADED
    ] * 3
    note = next(note for note in point["notes"] if "failed, because" in note)
    assert note.startswith(
        f"a hold of {failed} producers failed, because 3 of 3 windows were overloaded from"
    )
    assert "from 10 s of load on: broker 1: request handlers idle" in note
    assert any(f"a hold of {failed} producers failed" in reason for reason in reporter.reasons)
    # A run that stops after any of its trials would continue in the same way.
    lines = {"default": line_of(config.workload, config.goal, 1)}
    finished, begun = replay(lines, trials)
    assert finished["default"][0].result.bracket.sustained == point["np_sustained"]
    assert begun == {"default": ()}
