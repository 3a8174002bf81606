"""The trials that a run has finished so far, and what later trials take over from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from metrics.sources.beans import HANDLER_IDLE_NS
from metrics.sources.hosts.sample import HostSample
from metrics.sources.sample import BrokerSample
from metrics.sources.source import named_brokers
from metrics.trial.series import RunSeries
from metrics.trial.trial import Trial
from metrics.trial.warm_up import WarmUp


class TrialNumbering:
    """Numbers trials from 1; the two sides of a comparison share one numbering."""

    def __init__(self) -> None:
        self._following = 1

    def take(self) -> int:
        """Return the number of the next trial."""
        number = self._following
        self._following += 1
        return number

    def resume_at(self, number: int) -> None:
        """Give this number to the next trial, as the tables already have those before it."""
        self._following = number


class TrialHistory:
    """The finished trials of one run. All copies of a `RunContext` share it.

    Args:
        numbering: numbers the trials.

    Attributes:
        series_doubt: why the exporters' series are not proven; empty where they are, None before
            the first load.
        idle_unproven: broker whose series of the idle time no load has moved yet → the idle time
            below which a trial shows that it falls [ratio].
    """

    series_doubt: str | None = None
    idle_unproven: Mapping[int, float] = MappingProxyType({})

    def __init__(self, numbering: TrialNumbering | None = None) -> None:
        self.numbering = TrialNumbering() if numbering is None else numbering
        self._trials: list[Trial] = []
        self._series = RunSeries()
        self._warm_up = WarmUp()

    @property
    def trials(self) -> Sequence[Trial]:
        """The finished trials, oldest first."""
        return tuple(self._trials)

    @property
    def series(self) -> RunSeries:
        """The readings of the finished trials over time."""
        return self._series

    @property
    def warm_up(self) -> WarmUp:
        """The reading of the last warm-up of cold brokers; empty while there was none."""
        return self._warm_up

    @property
    def series_caveats(self) -> tuple[str, ...]:
        """What no load has proven of the exporters' series, a sentence each."""
        shown = {
            window.broker_id
            for trial in self._trials
            for window in trial.evidence.brokers
            if window.handler_idle is not None
            and window.handler_idle < self.idle_unproven.get(window.broker_id, 0.0)
        }
        left = sorted(self.idle_unproven.keys() - shown)
        found = [self.series_doubt] if self.series_doubt else []
        if left:
            found.append(
                f"no load was large enough to show that {HANDLER_IDLE_NS}, whose series was found "
                f"on the exporters' pages, falls under load ({named_brokers(left)})"
            )
        return tuple(found)

    def add(
        self, trial: Trial, samples: Iterable[BrokerSample], hosts: Iterable[HostSample] = ()
    ) -> None:
        """Add a finished trial with the samples of its brokers and hosts."""
        self._trials.append(trial)
        self._series.add(trial, samples, hosts)

    def resume(self, trials: Sequence[Trial], series: RunSeries, next_number: int) -> None:
        """Take over the trials of the run that is resumed.

        Args:
            series: the readings of those trials.
            next_number: the first number that the tables do not have yet.
        """
        self._trials = list(trials)
        self._series = series
        self.numbering.resume_at(next_number)

    def record_warm_up(self, reading: WarmUp) -> None:
        """Keep what a warm-up read; the rows of the trials after it state it."""
        self._warm_up = reading
