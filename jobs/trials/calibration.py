"""The planted limit of a run's brokers: measured once, and compared with the limits found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from jobs.cluster.topic_set import TopicSet
from jobs.config.link import RATE, WRITE_RATE, Link
from jobs.console.events import PhaseStarted, Table, warn
from jobs.trials.context import RunContext
from jobs.trials.load import GeneratorError, StageFailedError
from jobs.trials.point_topics import PointTopics
from jobs.trials.unscored_load import offer_unscored
from metrics.common.errors import RedlineError
from metrics.planning.planted import (
    HandlerTime,
    PlantedRates,
    complete_handler_times,
    planted_producers,
    planted_scale,
    stated_handler_times,
)
from metrics.reporting.limit_words import AT_LEVEL, estimate_words, span_words
from metrics.tables.boundary import Boundary
from metrics.traffic.axes import NP, SCALE
from metrics.traffic.mix import SCALE_UNITS
from metrics.traffic.pattern import TrafficPattern
from metrics.units import UNKNOWN, format_size

LIGHT_S = 4.0
"""Length of the window under a light load [s]."""
IDLE_LEAST = 0.9
"""Idle fraction that a light load leaves the handlers at least."""


class Calibration:
    """The handler times of a run's brokers, and the limit that follows from them.

    It stays empty on brokers without stated times, and on an axis other than producers or the scale
    of a mix. Planted disks and links need no measurement.
    """

    def __init__(self) -> None:
        self._times: tuple[HandlerTime, ...] = ()

    def measure(self, context: RunContext, topics: PointTopics, message_bytes: int) -> None:
        """Measure the handler times once, on brokers that are warm.

        The limits of the size are known by now, so any failure becomes a warning; a guard that
        tripped ends the run before its next load.
        """
        stated = stated_handler_times(context.environment, context.addresses)
        if not stated or self._times or context.config.axis not in (NP, SCALE):
            return
        try:
            light = topics.open(context.pattern(message_bytes, 1))
            self._times = measure_handler_times(context, light, stated)
        except (RedlineError, StageFailedError, GeneratorError, ValueError) as error:
            warn(context.reporter, f"the planted limit is not stated: {error}")

    def complete(self, boundary: Boundary, context: RunContext, goal: str) -> Boundary:
        """The boundary with its planted limit, where that is known."""
        if context.config.axis is SCALE:
            return self._with_scale(boundary, context, goal)
        limits = [*self._of_handlers(boundary, context, goal), *_of_rates(boundary, context)]
        return replace(boundary, np_planted=min(limits)) if limits else boundary

    def _with_scale(self, boundary: Boundary, context: RunContext, goal: str) -> Boundary:
        """The boundary of a mix with its planted limit, where that is known."""
        mix = context.pattern(boundary.message_bytes, SCALE_UNITS)
        limits = [planted_rates(context.environment).scale(mix, len(context.addresses))]
        if self._times:
            idle_min = context.thresholds[goal].indicators.request_handler_idle_min
            limits.append(planted_scale(self._times, mix, idle_min))
        known = [each for each in limits if each is not None]
        return replace(boundary, scale_planted=min(known)) if known else boundary

    def _of_handlers(self, boundary: Boundary, context: RunContext, goal: str) -> list[float]:
        if not self._times:
            return []
        idle_min = context.thresholds[goal].indicators.request_handler_idle_min
        producer = context.pattern(boundary.message_bytes, 1).producer
        return [planted_producers(self._times, producer, idle_min)]


def planted_rates(environment: Mapping[str, str]) -> PlantedRates:
    """The stated rates of the brokers' disks and link, from the environment of a run."""
    disk, link = environment.get("disk.write_rate"), environment.get("link.rate")
    return PlantedRates(
        None if disk is None else WRITE_RATE.of(disk),
        None if link is None else RATE.of(link),
        int(environment.get("link.mtu", Link().mtu)),
    )


def _of_rates(boundary: Boundary, context: RunContext) -> list[float]:
    """The planted limit of disks and link; empty without one, and on other axes."""
    if context.config.axis is not NP:
        return []
    pattern = context.pattern(boundary.message_bytes, 1)
    found = planted_rates(context.environment).producers(pattern, len(context.addresses))
    return [] if found is None else [found]


def measure_handler_times(
    context: RunContext, topics: TopicSet, stated: Mapping[int, HandlerTime]
) -> tuple[HandlerTime, ...]:
    """The handler times of all brokers, with their small terms from a window at a light load.

    Args:
        topics: topics that the light load writes to.
        stated: broker id → its stated time.

    Raises:
        StageFailedError, GeneratorError: the load failed.
        GuardStopError: a guard tripped.
        ValueError: see `complete_handler_times`.
    """
    context.reporter.report(PhaseStarted("measuring what a request takes at a light load"))
    light = offer_unscored(context, topics, _light(context, topics, stated), "calibration")
    return complete_handler_times(stated, light.windows)


def _light(
    context: RunContext, topics: TopicSet, stated: Mapping[int, HandlerTime]
) -> TrafficPattern:
    """The heaviest load that leaves the handlers idle enough, by their stated times."""
    phases = replace(context.workload.trial, ramp_up_s=0.0, warmup_s=1.0, measure_s=LIGHT_S)
    times = tuple(stated.values())
    if context.config.axis is SCALE:
        mix = context.pattern(topics.message_bytes, SCALE_UNITS)
        load = int(SCALE_UNITS * planted_scale(times, mix, IDLE_LEAST))
    else:
        one = context.pattern(topics.message_bytes, 1)
        load = int(planted_producers(times, one.producer, IDLE_LEAST))
    return context.pattern(topics.message_bytes, max(1, load)).with_phases(phases)


def calibration_table(boundaries: Sequence[Boundary]) -> Table | None:
    """Planted and found limits side by side; None where no limit is planted."""
    if scales := [each for each in boundaries if each.scale_planted and each.gave_up is None]:
        return _scale_table(scales)
    rows = [
        (
            format_size(each.message_bytes),
            f"{each.np_planted:.1f}",
            f"{each.np_sustained}-{'' if each.np_overloaded is None else each.np_overloaded}",
            f"{each.np_sustained / each.np_planted - 1:+.1%}",
            estimate_words(each) or UNKNOWN,
            _off_by(each.np_estimate, each.np_planted),
            span_words(each) or UNKNOWN,
        )
        for each in boundaries
        if each.np_planted and each.gave_up is None
    ]
    if not rows:
        return None
    return Table(
        "Planted in these brokers, and found",
        (
            "size",
            "planted producers",
            "found",
            "off by",
            "estimate",
            "off by",
            f"limit {AT_LEVEL}",
        ),
        tuple(rows),
    )


def _scale_table(boundaries: Sequence[Boundary]) -> Table:
    """Planted and found limits of mixes."""
    rows = [
        (
            f"{each.scale_planted:.3f}",
            f"{each.scale_sustained:g}-{each.scale_overloaded or ''}",
            _off_by(each.scale_sustained, each.scale_planted),
            estimate_words(each) or UNKNOWN,
            _off_by(each.scale_estimate, each.scale_planted),
            span_words(each) or UNKNOWN,
        )
        for each in boundaries
        if each.scale_planted
    ]
    columns = (
        "planted times", "found", "off by", "estimate", "off by", f"limit {AT_LEVEL}",
    )  # fmt: skip
    return Table("Planted in these brokers, and found", columns, tuple(rows))


def _off_by(estimate: float | None, planted: float) -> str:
    return UNKNOWN if estimate is None else f"{estimate / planted - 1:+.1%}"
