"""Fixed loads on an open cluster, without a search; repeats of INVALID trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jobs.config import Configuration
from jobs.trials.context import RunContext
from jobs.trials.gates import open_gates
from jobs.trials.measure import SearchProgress, TrialMeasurer
from jobs.trials.point_topics import PointTopics
from jobs.trials.unclean_stop import UncleanStop
from metrics.traffic.profile import RateProfile
from metrics.trial.trial import Trial


class Holder:
    """Holds fixed loads, with the gates, guards and judgement of a search's trials.

    It measures the brokers at rest when it is created. As a context manager it deletes the topics
    at the end.

    Args:
        warm_up_max_s: longest warm-up of cold brokers [s]; 0 for none.
    """

    def __init__(self, context: RunContext, warm_up_max_s: float) -> None:
        self._context = context
        self._topics = PointTopics(context)
        self._gates = open_gates(context, warm_up_max_s)

    def hold(
        self,
        message_bytes: int,
        load: int,
        reason: str = "",
        trials_left: int = 1,
        config: Configuration | None = None,
        stop: UncleanStop | None = None,
    ) -> Trial:
        """Make one trial at `load` on the goal's axis, and append it to the tables.

        Args:
            message_bytes: message size [B].
            reason: purpose of this trial, shown as progress.
            trials_left: number of trials that remain, this one included.
            config: configuration of this trial, on the same topic; that of the run by default.
            stop: kills a broker in the window.

        Raises:
            GuardStopError: a guard tripped; a trial that it ended is kept as INVALID.
        """
        progress = SearchProgress(reason, trials_left)
        context = self._context if config is None else replace(self._context, config=config)
        measurer = TrialMeasurer(
            context, self._topics, self._gates, message_bytes, progress, stop=stop
        )
        return measurer.trial(load)

    def hold_windows(
        self,
        message_bytes: int,
        load: int,
        windows: int,
        into: list[Trial],
        reason: str = "",
        profile: RateProfile | None = None,
    ) -> None:
        """Hold one load without a gap through so many windows; see `TrialMeasurer.hold_windows`."""
        progress = SearchProgress(reason, windows)
        measurer = TrialMeasurer(self._context, self._topics, self._gates, message_bytes, progress)
        measurer.hold_windows(load, windows, into, profile)

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *_: object) -> None:
        self._topics.__exit__()


def hold_until_valid(
    hold: Callable[[int], Trial], count: int, spare: int, into: list[Trial]
) -> None:
    """Make trials until `count` of them are valid, or more than `spare` are INVALID.

    Args:
        hold: makes a trial, given the number of valid trials that are still missing.
        into: receives the trials as they are judged, so that an error keeps them.
    """
    while (missing := count - sum(each.is_valid for each in into)) > 0:
        if len(into) - (count - missing) > spare:
            return
        into.append(hold(missing))
