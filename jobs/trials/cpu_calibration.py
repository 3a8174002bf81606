"""The limit of brokers with a CPU quota, forecast in a run from two light loads of each size."""

from __future__ import annotations

from dataclasses import replace

from jobs.console.events import PhaseStarted
from jobs.trials.context import RunContext
from jobs.trials.point_topics import PointTopics
from jobs.trials.unscored_load import offer_unscored
from metrics.planning.cpu_forecast import cpu_quota, cpu_times, forecast_producers
from metrics.windows.broker import BrokerWindow
from search.model import Verdict

LIGHT_SHARES = (0.25, 0.5)
"""The light loads over the highest load that the size sustained [ratio]."""
LIGHT_S = 8.0
"""Length of the window under a light load [s]."""


class CpuCalibration:
    """The forecasts of a run's sizes; empty on brokers without a stated CPU quota."""

    def __init__(self) -> None:
        self._producers: dict[int, float] = {}

    def measure(self, context: RunContext, topics: PointTopics, message_bytes: int) -> None:
        """Offer the light loads of a size once, and forecast its limit.

        Raises:
            StageFailedError, GeneratorError: a load failed.
            GuardStopError: a guard tripped.
            ValueError: see `cpu_times`.
        """
        quota = cpu_quota(context.environment)
        if quota is None or message_bytes in self._producers:
            return
        sustained = _sustained(context, message_bytes)
        if sustained < 1 / LIGHT_SHARES[0]:
            return
        context.reporter.report(PhaseStarted("measuring the CPU time of a request at light loads"))
        light = [
            _windows(context, topics, message_bytes, max(1, round(share * sustained)))
            for share in LIGHT_SHARES
        ]
        producer = context.pattern(message_bytes, 1).producer
        self._producers[message_bytes] = forecast_producers(cpu_times(*light), producer, quota)

    def forecast(self, message_bytes: int) -> float | None:
        """The number of producers at which the first broker has used up its quota."""
        return self._producers.get(message_bytes)


def _sustained(context: RunContext, message_bytes: int) -> int:
    """The highest load of a size that a trial sustained; 0 without one."""
    loads = (
        each.load
        for each in context.history.trials
        if each.point_message_bytes == message_bytes
        and any(one.verdict is Verdict.SUSTAINED for one in each.judgements.values())
    )
    return max(loads, default=0)


def _windows(
    context: RunContext, topics: PointTopics, message_bytes: int, load: int
) -> tuple[BrokerWindow, ...]:
    pattern = context.pattern(message_bytes, load)
    phases = replace(pattern.phases, ramp_up_s=0.0, warmup_s=2.0, measure_s=LIGHT_S)
    name = f"cpu-{message_bytes}-{load}"
    light = replace(pattern, phases=phases)
    return offer_unscored(context, topics.open(light), light, name).windows
