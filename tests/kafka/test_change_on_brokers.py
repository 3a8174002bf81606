"""A search notices that the limit of real brokers changes while it is measured.

In the middle of a search half of the request handlers of calibrated brokers are taken away, which
halves the planted limit; and the CPU quota of a broker is lowered:

    python -m pytest -m long tests/kafka/test_change_on_brokers.py \
        -o log_cli=true -o log_cli_level=WARNING
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from kafka.admin import ConfigResourceType

from jobs.config.loading import load_workload
from jobs.testbed.cpu_groups import cpu_groups, group_name
from metrics.traffic.clients import ProducerPattern
from search.guided import Guided
from search.limits import Limits
from search.model import Done, Observation, Verdict
from tests.support.loaded_brokers import LoadedBrokers, loaded_testbed
from tests.support.single_goal import run_search

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.long, pytest.mark.timeout(280)]

STATED_MS = {1: 40.0}
HANDLERS = 4
LEADERS = {partition: [1] for partition in range(4)}
LIMITS = Limits(load_start_max=128, load_cap=1_000, resolution=0.05, invalid_repeats_max=3)
QUOTA, LOWERED = 0.4, 0.24
"""Cores that a broker may use, before the change and after it."""
QUOTA_LIMITS = replace(LIMITS, resolution=0.15)
"""A broker with a CPU quota sustains loads near its limit in one trial and not in the next: one
that is stopped handles the requests that wait together, which takes less CPU time for each."""
SMALL_BATCHES = ("workload.producer.batch_size=4096", "workload.producer.rate_bytes_per_s=25000")
WARM_LOAD, WARM_TRIALS = 240, 3
"""The JVM compiles while it has a whole core."""
CHANGES_AFTER = 4
"""Number of trials before the change."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[LoadedBrokers]:
    overrides: dict[str, object] = {"produce_handler_ms": STATED_MS}
    with loaded_testbed("calibrated", brokers=1, overrides=overrides, name="changing") as brokers:
        yield brokers


class Measurer:
    """Offers loads of a search, and makes a change after `CHANGES_AFTER` trials."""

    def __init__(
        self, brokers: LoadedBrokers, producer: ProducerPattern, change: Callable[[], None]
    ) -> None:
        self._brokers, self._producer, self._change = brokers, producer, change
        self.trials: list[Observation] = []

    def measure(self, load: int) -> Observation:
        if len(self.trials) == CHANGES_AFTER:
            self._change()
        seen = self.offer(load)
        self.trials.append(seen)
        log.warning("%d. %d producers: %s %s", len(self.trials), load, *_words(seen))
        return seen

    def offer(self, load: int) -> Observation:
        with self._brokers.topic(LEADERS, {}) as topic:
            found = self._brokers.trial(
                topic, LEADERS, self._producer, load, measure_s=6.0, warmup_s=1.5
            )
        judgement = found.judgement
        return Observation(load, judgement.verdict, dict(judgement.utilization), 8.0)


def _words(seen: Observation) -> tuple[str, str]:
    used = seen.indicators.get("request_handler_idle")
    return seen.verdict.value, "no reading" if used is None else f"idle {1.0 - 0.8 * used:.2f}"


def searched(measurer: Measurer, remains: float, rel: float, limits: Limits = LIMITS) -> Done:
    """The end of a search that notices the change.

    Args:
        remains: share of the limit that the change leaves.
        rel: largest distance of the answer from it [ratio].
    """
    answer = run_search(Guided(limits), measurer)
    log.warning("%s", answer)
    assert isinstance(answer, Done), answer
    assert answer.changed
    change = answer.changed[0]
    assert change.last_before < CHANGES_AFTER <= change.since + 1
    before = max(
        seen.load for seen in measurer.trials[:CHANGES_AFTER] if seen.verdict is Verdict.SUSTAINED
    )
    assert change.before is not None and change.before.high >= before
    assert change.before.median is not None
    assert answer.bracket.sustained == pytest.approx(remains * change.before.median, rel=rel)
    return answer


def test_a_planted_limit_that_halves_in_the_middle_is_named_and_measured_again(
    brokers: LoadedBrokers,
) -> None:
    def halve() -> None:
        brokers.alter(ConfigResourceType.BROKER, "1", {"num.io.threads": f"{HANDLERS // 2}"})

    producer = load_workload("calibrated").pattern(1000).producer
    searched(Measurer(brokers, producer, halve), 0.5, 0.15)


@pytest.mark.skipif(cpu_groups() is None, reason="CPU-quota cgroups cannot be created here")
def test_a_cpu_quota_that_is_lowered_in_the_middle_is_named_and_measured_again() -> None:
    quota = {"cpus": 1.0}
    with loaded_testbed("cpu-quota", overrides=quota, name="throttled") as under_load:

        def set_quota(cpus: float) -> None:
            groups = cpu_groups()
            assert groups is not None
            groups.make(group_name(under_load.testbed.state.spec.id, 1), cpus)

        producer = load_workload("planted", SMALL_BATCHES).pattern(1000).producer
        measurer = Measurer(under_load, producer, lambda: set_quota(LOWERED))
        for _ in range(WARM_TRIALS):
            measurer.offer(WARM_LOAD)
        set_quota(QUOTA)
        # Under less CPU time more requests wait together, and each takes less of it: the limit
        # falls by less or more than the quota.
        searched(measurer, LOWERED / QUOTA, 0.35, QUOTA_LIMITS)
