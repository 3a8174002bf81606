"""The time to rest: how long brokers take to be at rest after an overload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.runs.measurement import HeldMeasurement, Loads, result_at
from metrics.common.errors import NoConclusionError
from metrics.comparing.figures import FigureKind, Result
from search.model import Verdict


class TimeToRest(HeldMeasurement):
    """The time from the end of an overload until all brokers are at rest."""

    api = 1
    name = "time-to-rest"
    figure = FigureKind("time to rest", less_is_better=True, columns={"low idle": "idle"})
    unit = "s"

    def hold(self, loads: Loads) -> None:
        """Overload the brokers once; each overload is followed by the wait for rest."""
        trial = loads.hold("an overload, and the rest after it")
        if trial.verdict is not Verdict.OVERLOADED:
            raise NoConclusionError(
                f"the load was {trial.verdict.value}; expected an overload, as brokers come to "
                "rest after it; raise load"
            )

    def result(self, trials: Sequence[Mapping[str, Any]]) -> Result:
        """The time until the brokers were at rest."""
        last = trials[-1]
        why = "the brokers did not come to rest within a minute"
        return result_at(last, last.get("recovery_s"), why, idle=last["handler_idle_min"])
