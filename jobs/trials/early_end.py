"""Ends a trial's window as soon as its verdict will hardly change any more."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

from jobs.trials.driver_line import TrialLine
from jobs.trials.watching import watching
from metrics.judging.progress import progress_of
from metrics.judging.thresholds import Thresholds
from metrics.sources.sampler import Sampler
from search.early_stop import Progress, StopRule

NOTICE_S = 1.0
"""How far ahead the end is set, so that every task hears of it in time [s]."""


class EarlyEnd:
    """Watches a running trial and ends its window early where the rule allows it.

    Args:
        rule: None to hold every trial for its full time.
        thresholds: of all goals that judge the trial; it ends when none needs more of it.
        offered_per_s: records that all producers together offer [1/s].

    """

    def __init__(
        self,
        rule: StopRule | None,
        line: TrialLine,
        sampler: Sampler,
        broker_ids: frozenset[int],
        times: tuple[float, float],
        interval_s: float,
        thresholds: Sequence[Thresholds],
        offered_per_s: float,
    ) -> None:
        self._rule = rule
        self._line = line
        self._sampler = sampler
        self._broker_ids = broker_ids
        self._warmup_s, self._measure_s = times
        self._interval_s = interval_s
        self._thresholds = thresholds
        self._offered_per_s = offered_per_s

    def watch(self) -> AbstractContextManager[None]:
        """Watch while the block lasts; looks, and speaks at most once."""
        if self._rule is None:
            return nullcontext()
        return watching("early-end", self._look, self._interval_s / 2)

    def _look(self) -> float | None:
        end_s = self._end_now(time.time())
        if end_s is None:
            return self._interval_s / 2
        self._line.end_after(end_s)
        return None

    def _end_now(self, now_s: float) -> float | None:
        """The length that the window may be cut to, or None while it has to go on [s]."""
        start_s, rule = self._line.start_s, self._rule
        if start_s is None or rule is None:
            return None
        begun_s = start_s + self._warmup_s
        least_s = max(each.window_min_s or 0.0 for each in self._thresholds)
        end_s = max(now_s - begun_s + NOTICE_S, least_s)
        if now_s <= begun_s or end_s >= self._measure_s:
            return None
        if all(rule.verdict(progress) is not None for progress in self._progress(begun_s)):
            return end_s
        return None

    def _progress(self, begun_s: float) -> Iterator[Progress]:
        """The trial so far in the eyes of each goal."""
        samples, acked = self._sampler.so_far(), self._line.acked()
        for thresholds in self._thresholds:
            yield progress_of(
                samples,
                self._broker_ids,
                (begun_s, begun_s + self._measure_s),
                self._interval_s,
                thresholds,
                acked,
                self._offered_per_s,
            )
