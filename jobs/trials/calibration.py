"""The planted limit of a testbed. The testbed's profile sets service times of requests, and the
planted limit follows from these times. A run measures the service times once, and compares the
planted limit with the limits that the run finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from jobs.config.link import RATE, WRITE_RATE, Link
from jobs.console.events import PhaseStarted, Table, warn
from jobs.trials.context import RunContext
from jobs.trials.point_topics import PointTopics
from jobs.trials.unscored_load import offer_unscored, unscored
from metrics.common.errors import RedlineError
from metrics.planning.planted import (
    HandlerTime,
    PlantedRates,
    complete_handler_times,
    planted_scale,
    stated_handler_times,
)
from metrics.reporting.limit_answer import estimate_words, span_words
from metrics.tables.boundary import Boundary
from metrics.traffic.axes import NP, SCALE
from metrics.traffic.mix import SCALE_UNITS
from metrics.traffic.pattern import TrafficPattern
from metrics.units import AT_LEVEL, UNKNOWN, format_size

LIGHT_S = 4.0
"""Length of the window under a light load [s]."""
IDLE_LEAST = 0.9
"""Minimum idle fraction of the request handlers under a light load [ratio]."""


class Calibration:
    """The handler times of a testbed's brokers, and the limit that follows from these times.

    Nothing is measured if the brokers have no stated handler times, or if the search varies neither
    producers nor the scale of a mix. The limit from a simulated disk or link needs no measurement,
    because its rate is in the profile.
    """

    def __init__(self) -> None:
        self._times: tuple[HandlerTime, ...] = ()

    def measure(self, context: RunContext, topics: PointTopics, message_bytes: int) -> None:
        """Measure the handler times once in a run, on warm brokers.

        When this method is called, the search has already found the limits, so a failure is only a
        warning. If a guard tripped, the run ends before its next load.
        """
        stated = stated_handler_times(context.environment, context.addresses)
        if not stated or self._times or context.config.axis not in (NP, SCALE):
            return
        try:
            light = topics.open(context.pattern(message_bytes, 1))
            size = light.message_bytes
            context.reporter.report(PhaseStarted("measuring the time of a request at a light load"))
            # The heaviest load at which the handlers' idle fraction is at least `IDLE_LEAST`.
            scale = planted_scale(tuple(stated.values()), _unit(context, size), IDLE_LEAST)
            load = int(scale * (SCALE_UNITS if context.config.axis is SCALE else 1))
            pattern = unscored(context.pattern(size, max(1, load)), LIGHT_S, 1.0)
            windows = offer_unscored(context, light, pattern, "calibration").windows
            self._times = complete_handler_times(stated, windows)
        except (RedlineError, ValueError) as error:
            warn(context.reporter, f"the planted limit could not be measured: {error}")

    def complete(self, boundary: Boundary, context: RunContext, goal: str) -> Boundary:
        """Add the planted limit to a boundary, unless the planted limit is unknown."""
        if context.config.axis not in (NP, SCALE):
            return boundary
        unit, rates = _unit(context, boundary.message_bytes), planted_rates(context.environment)
        limits = [rates.scale(unit, len(context.addresses))]
        if self._times:
            idle_min = context.thresholds[goal].indicators.request_handler_idle_min
            limits.append(planted_scale(self._times, unit, idle_min))
        known = [each for each in limits if each is not None]
        if not known:
            return boundary
        if context.config.axis is SCALE:
            return replace(boundary, scale_planted=min(known))
        return replace(boundary, np_planted=min(known))


def _unit(context: RunContext, message_bytes: int) -> TrafficPattern:
    """The pattern of one unit of a planted limit: one producer, or the mix at scale 1."""
    return context.pattern(message_bytes, SCALE_UNITS if context.config.axis is SCALE else 1)


def planted_rates(environment: Mapping[str, str]) -> PlantedRates:
    """The stated rates of the brokers' disks and network link, from the environment of a run."""
    disk, link = environment.get("disk.write_rate"), environment.get("link.rate")
    return PlantedRates(
        None if disk is None else WRITE_RATE.of(disk),
        None if link is None else RATE.of(link),
        int(environment.get("link.mtu", Link().mtu)),
    )


def calibration_table(boundaries: Sequence[Boundary]) -> Table | None:
    """A table that compares planted limits with found limits; None if no limit is planted."""
    rows: list[tuple[str, ...]] = []
    found: tuple[str, ...]
    for each in boundaries:
        planted = each.scale_planted or each.np_planted
        if each.gave_up is not None or not planted:
            continue
        if each.scale_planted:
            sustained, estimate = each.scale_sustained, each.scale_estimate
            found = (f"{planted:.3f}", f"{sustained:g}-{each.scale_overloaded or ''}")
        else:
            sustained, estimate = each.np_sustained, each.np_estimate
            over = "" if each.np_overloaded is None else each.np_overloaded
            found = (format_size(each.message_bytes), f"{planted:.1f}", f"{sustained}-{over}")
        rows.append(
            (
                *found,
                _off_by(sustained, planted),
                estimate_words(each) or UNKNOWN,
                _off_by(estimate, planted),
                span_words(each) or UNKNOWN,
            )
        )
    if not rows:
        return None
    is_scale = any(each.scale_planted for each in boundaries)
    begin = ("planted times",) if is_scale else ("size", "planted producers")
    columns = (*begin, "found", "off by", "estimate", "off by", f"limit {AT_LEVEL}")
    return Table("Planted limits of these brokers, and found limits", columns, tuple(rows))


def _off_by(estimate: float | None, planted: float) -> str:
    return UNKNOWN if estimate is None else f"{estimate / planted - 1:+.1%}"
