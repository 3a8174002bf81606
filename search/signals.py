"""The conversion of a trial's indicators to a distance from the limit."""

from __future__ import annotations

from dataclasses import dataclass

from search.model import Observation, Verdict

FAR_SHORT = 0.97
"""If the acknowledged share of a load is below this value, utilization no longer grows with the
load [ratio]."""

VERY_SHORT = 0.8
"""If the acknowledged share of an overload is below this value, the overload is a saturation and
not a short stall [ratio]."""

SATURATED_IDLE = 0.05
"""If an idle fraction is not above this value, the reading shows only that the limit is lower than
the load [ratio]."""

SATURATED_UTILIZATION = 1.1875
"""Utilization at the idle fraction `SATURATED_IDLE`, if the threshold of the idle fraction is 0.20
[ratio]. The value is (1 - 0.05) / (1 - 0.20)."""

HANDLER_IDLE = "request_handler_idle"
"""Name of the indicator of the request handlers' idle time."""
AT_REST = "at_rest"
"""Name of an indicator: how much other clients used the request handlers before the load."""


def own_utilization(used: float, at_rest: float) -> float:
    """The utilization that the load causes, divided by the utilization that other clients leave
    free below the threshold [ratio].

    If other clients use the cluster, the utilization that they cause does not grow with the load.
    Only the utilization above this utilization grows with the load.

    Args:
        used: utilization with the load, 1 at the threshold [ratio].
        at_rest: utilization without the load, 1 at the threshold [ratio].
    """
    return used if at_rest >= 1.0 or used >= 1.0 else max(0.0, used - at_rest) / (1.0 - at_rest)


@dataclass(frozen=True)
class Signals:
    """The names and thresholds of indicators that show the distance from the limit.

    Attributes:
        smooth: indicators that grow smoothly with the load. The indicator with the highest
            utilization shows the distance from the limit. An indicator that jumps, such as the
            share of samples with ISR changes, is excluded, because it shows a verdict but no
            distance.
        achieved: the indicator of the acknowledged share, whose utilization is (1 - achieved) / (1
            - achieved_min).
        achieved_min: threshold of the acknowledged share [ratio].
        idle: the indicator of the idle fraction, whose utilization is (1 - idle) / (1 - idle_min).
        idle_min: threshold of the idle fraction [ratio].
    """

    smooth: tuple[str, ...] = (HANDLER_IDLE, "network_idle")
    achieved: str = "achieved"
    achieved_min: float = 0.99
    idle: str = HANDLER_IDLE
    idle_min: float = 0.20

    def utilization(self, seen: Observation) -> float | None:
        """The highest utilization of the indicators in `smooth` in a valid trial; None if this
        utilization does not show the distance from the limit.

        Far above the limit, utilization no longer grows. A load is far above the limit if brokers
        acknowledged only a small share of the load.
        """
        if seen.verdict is Verdict.INVALID or self._achieved(seen) < FAR_SHORT:
            return None
        return self.highest(seen)

    def ceiling(self, seen: Observation) -> float | None:
        """The highest utilization of the indicators in `smooth`, for an overloaded trial in which
        brokers acknowledged less than the share `VERY_SHORT` of the load; None for other trials.

        If the highest utilization of these indicators is below 1, the limiting resource has no
        indicator in `smooth`.
        """
        if seen.verdict is not Verdict.OVERLOADED or self._achieved(seen) >= VERY_SHORT:
            return None
        return self.highest(seen)

    def delivered(self, seen: Observation) -> float | None:
        """The acknowledged share of an overload [ratio]; None if this share does not show the
        limit.

        If the limiting resource has no indicator in `smooth`, the acknowledged load is
        approximately the limit. If an indicator in `smooth` is above its threshold, the
        acknowledged load is only an upper bound of the limit. If requests wait, they become larger,
        so the load that brokers acknowledge can be several times the limit.
        """
        share, used = self._achieved(seen), self.highest(seen)
        if seen.verdict is not Verdict.OVERLOADED or share > self.achieved_min:
            return None
        if used is not None and used >= 1.0:
            return None
        return share if share > 0.05 else None

    def at_most(self, seen: Observation) -> float | None:
        """An upper bound of the limit: the load that brokers acknowledged in an overloaded trial in
        which they had almost no idle time; None for other trials.
        """
        used = self.highest(seen)
        if seen.verdict is not Verdict.OVERLOADED or used is None or used < SATURATED_UTILIZATION:
            return None
        return seen.load * min(1.0, max(0.0, self._achieved(seen)))

    def _achieved(self, seen: Observation) -> float:
        return 1.0 - seen.indicators.get(self.achieved, 0.0) * (1.0 - self.achieved_min)

    def highest(self, seen: Observation) -> float | None:
        """The highest utilization of the indicators in `smooth` in a trial; None if the trial shows
        none of these indicators.

        For request handlers, the result is `own_utilization`, which excludes the utilization by
        other clients.
        """
        at_rest = seen.indicators.get(AT_REST, 0.0)
        found = [
            own_utilization(used, at_rest) if name == self.idle else used
            for name in self.smooth
            if (used := seen.indicators.get(name)) is not None
        ]
        return max(found, default=None)

    def describe(self, seen: Observation) -> str:
        """The reading of the most utilized indicator in `smooth`, in words, such as "idle 0.41"."""
        found = [(seen.indicators[n], n) for n in self.smooth if n in seen.indicators]
        if not found:
            return "no reading"
        used, name = max(found)
        if name == self.idle:
            return f"idle {max(0.0, 1.0 - used * (1.0 - self.idle_min)):.2f}"
        return f"{name} at {100 * used:.0f} % of its threshold"

    def describe_limit(self, at_limit: float) -> str:
        """The expected reading at the limit in words, such as "0.20" or "100 %"."""
        if self.smooth and self.smooth[0] == self.idle:
            return f"{1.0 - at_limit * (1.0 - self.idle_min):.2f}"
        return f"{100 * at_limit:.0f} %"
