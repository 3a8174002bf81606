"""Live progress of a running trial, from the samples taken so far."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

from jobs.config import Trial
from jobs.console.events import Reporter, TrialProgress
from jobs.trials.driver_line import TrialLine
from jobs.trials.watching import watching
from metrics.sources.sampler import Sampler
from metrics.windows.broker import broker_window

_INTERVAL_S = 0.5
_RECENT_S = 2.0


class Ticker:
    """Reports where a trial stands, twice a second."""

    def __init__(
        self,
        reporter: Reporter,
        sampler: Sampler,
        trial: Trial,
        line: TrialLine,
    ) -> None:
        self._reporter = reporter
        self._sampler = sampler
        self._trial = trial
        self._line = line

    def watch(self) -> AbstractContextManager[None]:
        """Report while the block lasts."""
        self._started_s = time.time()
        return watching("ticker", self._look, _INTERVAL_S)

    def _look(self) -> float:
        now_s = time.time()
        elapsed_s = now_s - self._started_s
        start_s = self._line.start_s
        idle = self._idle(now_s)
        self._reporter.report(
            TrialProgress(
                stage=stage_at(-1.0 if start_s is None else now_s - start_s, self._trial),
                elapsed_s=elapsed_s,
                idle_lowest=idle[0] if idle else None,
                idle_broker=idle[1] if idle else None,
            )
        )
        return _INTERVAL_S

    def _idle(self, now_s: float) -> tuple[float, int] | None:
        """Lowest idle fraction of the last seconds, and its broker."""
        interval_s = self._trial.sample_interval_s
        samples = [s for s in self._sampler.so_far() if s.at_s >= now_s - _RECENT_S]
        windows = [
            broker_window(samples, broker, now_s - _RECENT_S, now_s, interval_s)
            for broker in {sample.broker_id for sample in samples}
        ]
        known = [(w.handler_idle, w.broker_id) for w in windows if w.handler_idle is not None]
        return min(known, default=None)


def stage_at(load_s: float, trial: Trial) -> str:
    """The phase that a trial is in so many seconds after its first record [s]."""
    if load_s < 0:
        return "preparing"
    if load_s < trial.warmup_s:
        return "warming up"
    if load_s < trial.load_s:
        return "measuring"
    return "draining"
