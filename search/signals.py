"""The indicators of one trial, read as a distance to the limit."""

from __future__ import annotations

from dataclasses import dataclass

from search.model import Observation, Verdict

FAR_SHORT = 0.97
"""Achieved share below which a smooth utilization no longer grows with the load [ratio]."""

VERY_SHORT = 0.8
"""Achieved share below which an overload counts as saturation and not as a short stall [ratio]."""

SATURATED_IDLE = 0.05
"""Idle fraction up to which a reading shows only that the limit is lower [ratio]."""

SATURATED_UTILIZATION = 1.1875
"""The same as a utilization of the default threshold, an idle fraction of 0.20: 0.95 / 0.80."""

HANDLER_IDLE = "request_handler_idle"
"""The indicator of the request handlers' idle time."""
AT_REST = "at_rest"
"""The indicator with the utilization of the handlers without its load, by others."""


def own_utilization(used: float, at_rest: float) -> float:
    """The share of the utilization up to the threshold that a load takes of what others leave.

    Beside others the utilization begins at theirs, so only what is above it grows with the load.

    Args:
        used: the utilization, 1 at the threshold [ratio].
        at_rest: the utilization without the load [ratio].
    """
    return used if at_rest >= 1.0 or used >= 1.0 else max(0.0, used - at_rest) / (1.0 - at_rest)


@dataclass(frozen=True)
class Signals:
    """The indicators that can be read as a distance.

    Attributes:
        smooth: indicators that grow smoothly with load, of which the highest counts. An
            indicator that jumps, such as the share of samples with ISR changes, is
            evidence for a verdict but does not show the distance.
        achieved: the indicator whose utilization is (1 - achieved) / (1 - achieved_min).
        achieved_min: its threshold [ratio].
        idle, idle_min: the idle indicator and its threshold, to show the idle fraction in
            messages: its utilization is (1 - idle) / (1 - idle_min).
    """

    smooth: tuple[str, ...] = (HANDLER_IDLE, "network_idle")
    achieved: str = "achieved"
    achieved_min: float = 0.99
    idle: str = HANDLER_IDLE
    idle_min: float = 0.20

    def utilization(self, seen: Observation) -> float | None:
        """The highest smooth utilization of a valid trial, or None when it shows no distance.

        Well past the limit, the first resource that is used up stops the growth of the utilization,
        so a trial that fell far short is read by its shortfall alone.
        """
        if seen.verdict is Verdict.INVALID or self._achieved(seen) < FAR_SHORT:
            return None
        return self.highest(seen)

    def ceiling(self, seen: Observation) -> float | None:
        """The utilization at which an overload that fell very short stood still, or None.

        It is below 1 where a resource without a smooth reading is the limit.
        """
        if seen.verdict is not Verdict.OVERLOADED or self._achieved(seen) >= VERY_SHORT:
            return None
        return self.highest(seen)

    def delivered(self, seen: Observation) -> float | None:
        """The achieved share of an overload that shows where the limit is [ratio], or None.

        Load times this share is approximately the limit where a resource without a smooth reading
        is the limit. Where a smooth reading is past its threshold, it is only an upper bound:
        requests grow while they queue, and several times the limit gets through.
        """
        share, used = self._achieved(seen), self.highest(seen)
        if seen.verdict is not Verdict.OVERLOADED or share > self.achieved_min:
            return None
        if used is not None and used >= 1.0:
            return None
        return share if share > 0.05 else None

    def at_most(self, seen: Observation) -> float | None:
        """The upper bound that a saturated overload sets, as a load, or None."""
        used = self.highest(seen)
        if seen.verdict is not Verdict.OVERLOADED or used is None or used < SATURATED_UTILIZATION:
            return None
        return seen.load * min(1.0, max(0.0, self._achieved(seen)))

    def _achieved(self, seen: Observation) -> float:
        return 1.0 - seen.indicators.get(self.achieved, 0.0) * (1.0 - self.achieved_min)

    def highest(self, seen: Observation) -> float | None:
        """The highest smooth utilization of any trial, or None.

        Beside others, that of the handlers is what the load takes of the time that they leave.
        """
        at_rest = seen.indicators.get(AT_REST, 0.0)
        found = [
            own_utilization(used, at_rest) if name == self.idle else used
            for name in self.smooth
            if (used := seen.indicators.get(name)) is not None
        ]
        return max(found, default=None)

    def describe(self, seen: Observation) -> str:
        """The highest smooth reading in words, such as "idle 0.41"."""
        found = [(seen.indicators[n], n) for n in self.smooth if n in seen.indicators]
        if not found:
            return "no reading"
        used, name = max(found)
        if name == self.idle:
            return f"idle {max(0.0, 1.0 - used * (1.0 - self.idle_min)):.2f}"
        return f"{name} at {100 * used:.0f} % of its threshold"

    def describe_limit(self, at_limit: float) -> str:
        """The expected reading at the limit, in words."""
        if self.smooth and self.smooth[0] == self.idle:
            return f"{1.0 - at_limit * (1.0 - self.idle_min):.2f}"
        return f"{100 * at_limit:.0f} %"
