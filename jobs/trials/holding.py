"""Fixed loads on an open cluster, one trial after another: nothing is searched for."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType

from jobs.config import Configuration
from jobs.trials.context import RunContext
from jobs.trials.continuous import ContinuousMeasurer
from jobs.trials.measure import SearchProgress, TrialMeasurer
from jobs.trials.point_topics import PointTopics
from jobs.trials.unclean_stop import UncleanStop
from jobs.trials.warm_up import open_gates
from metrics.traffic.profile import RateProfile
from metrics.trial.trial import Trial


class Holder:
    """Holds loads through the same gates, guards and judgement as a search's trials.

    A context manager: leaving it deletes the topic. Making one looks at the brokers at rest.

    Args:
        warm_up_max_s: load on brokers whose JVMs are cold, at most [s]; 0 is none.
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
        """One trial at `load` on the goal's axis, which is appended to the tables.

        Args:
            message_bytes: message size [B].
            reason: why this trial is made, for progress.
            trials_left: how many are still to come, this one included.
            config: of this trial, on the same topic; that of the run by default.
            stop: kills a broker in the window.

        Raises:
            GuardStopError: a guard tripped; a trial that it ended is kept, as INVALID.
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
        """One load without a gap, of so many windows, each appended as a trial; see `hold`.

        Args:
            into: takes the trials as they are judged.
            profile: what share of the load is offered at which time.

        Raises:
            GuardStopError: a guard tripped; the windows before are kept.
            NoConclusionError: what was acknowledged is not what the topics hold.
        """
        progress = SearchProgress(reason, windows)
        measurer = ContinuousMeasurer(
            self._context, self._topics, self._gates, message_bytes, progress
        )
        measurer.hold_windows(load, windows, into, profile)

    def __enter__(self) -> Holder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._topics.__exit__(kind, error, trace)
