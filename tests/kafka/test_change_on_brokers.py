"""A search notices that the limit of real brokers changes while it is measured.

Half of the request handlers of calibrated brokers are taken away in the middle of a search, which
halves the planted limit:

    python -m pytest -m long tests/kafka/test_change_on_brokers.py \
        -o log_cli=true -o log_cli_level=WARNING
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest
from kafka.admin import ConfigResourceType

from jobs.config.loading import load_workload
from jobs.testbed.launcher import start
from search.guided import Guided
from search.limits import Limits
from search.loop import run_search
from search.model import Done, Observation
from tests.bench.sampling import bare_jvm
from tests.support.loaded_brokers import LoadedBrokers, loaded

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.long, pytest.mark.timeout(280)]

STATED_MS = {1: 40.0}
HANDLERS = 4
LEADERS = {partition: [1] for partition in range(4)}
LIMITS = Limits(load_start_max=128, load_cap=1_000, resolution=0.05, invalid_repeats_max=3)
CHANGES_AFTER = 4
"""Number of trials before the change."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[LoadedBrokers]:
    overrides: dict[str, object] = {"produce_handler_ms": STATED_MS}
    with (
        bare_jvm() as (jvm, _),
        start("calibrated", brokers=1, overrides=overrides, name="changing") as running,
        loaded(running, jvm) as under_load,
    ):
        yield under_load


class Measurer:
    """Offers loads of a search, and takes half of the handlers away after some trials."""

    def __init__(self, brokers: LoadedBrokers, changes_after: int | None) -> None:
        self._brokers, self._changes_after = brokers, changes_after
        self._producer = load_workload("calibrated").pattern(1000).producer
        self.trials: list[Observation] = []

    def measure(self, load: int) -> Observation:
        """See `search.loop.Measurer`."""
        if len(self.trials) == self._changes_after:
            self._set_handlers(HANDLERS // 2)
        with self._brokers.topic(LEADERS, {}) as topic:
            found = self._brokers.trial(
                topic, LEADERS, self._producer, load, measure_s=6.0, warmup_s=1.5
            )
        judgement = found.judgement
        seen = Observation(load, judgement.verdict, dict(judgement.utilization), 8.0)
        self.trials.append(seen)
        log.warning("%d. %d producers: %s %s", len(self.trials), load, *_words(seen))
        return seen

    def _set_handlers(self, count: int) -> None:
        self._brokers.alter(ConfigResourceType.BROKER, "1", {"num.io.threads": f"{count}"})


def _words(seen: Observation) -> tuple[str, str]:
    used = seen.indicators.get("request_handler_idle")
    return seen.verdict.value, "no reading" if used is None else f"idle {1.0 - 0.8 * used:.2f}"


def test_a_planted_limit_that_halves_in_the_middle_is_named_and_measured_again(
    brokers: LoadedBrokers,
) -> None:
    measurer = Measurer(brokers, CHANGES_AFTER)
    answer = run_search(Guided(LIMITS), measurer)
    log.warning("%s", replace(answer, notes=()) if isinstance(answer, Done) else answer)
    assert isinstance(answer, Done), answer
    assert answer.changed
    change = answer.changed[0]
    assert change.last_before < CHANGES_AFTER <= change.since + 1
    before = max(
        seen.load for seen in measurer.trials[:CHANGES_AFTER] if seen.verdict.value == "SUSTAINED"
    )
    assert change.before is not None and change.before.high >= before
    assert change.before.median is not None
    assert answer.bracket.sustained == pytest.approx(0.5 * change.before.median, rel=0.15)
