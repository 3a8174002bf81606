"""The early end of a trial's window, once the verdict of the trial is very unlikely to change.

An overload harms other clients of the brokers. So if the load of a trial is an overload, the
trial's window ends as soon as the verdict OVERLOADED is certain. A load that seems sustained needs
a longer window, in which a lagging follower would leave the ISR. If brokers acknowledge far less
than the offered load, or if the brokers' request handlers have no idle time, the load is far above
the limit. The window of a load far above the limit begins during the warm-up, so that the load ends
sooner. The window of a load far above the limit is also shorter: it has only as many time
slices as are necessary to compute a standard deviation.

A held load stays the same for several windows, or for one long window. A held load usually lasts
for its full length. On brokers with other clients, an overload that lasts for
`search.overload_max_s` ends a held load; see `overload_lasts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import isinf

from jobs.trials.running_load import NOTICE_S, RunningLoad
from jobs.trials.sampling import Samples
from metrics.judging.running import Acked, Slices, lowest_idle
from metrics.judging.verdict import progress_of, window_least_s
from search.early_stop import FEWEST, SETTLED_S, SHORTFALL_S, Progress, StopRule, is_far_beyond
from search.model import Verdict
from search.signals import SATURATED_IDLE

HELD_RULE = StopRule()
"""The stop rule for a load that stays the same for several windows, or for one long window. The
stop rule ends such a load early only if the load is an overload.
"""
OTHERS_ERROR_RATE = 0.3
"""Minimum `StopRule.error_rate` of trials on brokers with other clients: the accepted probability
that the early verdict is wrong. With an error rate of 0.3, the window of an overload ends after
about two thirds of its time slices. In simulations, an error rate of 0.3 caused no more wrong
verdicts than an error rate of 0.01. The reason is that the stop rule divides the error rate among
many checks with correlated results.
"""
SAMPLES_OVER = 2.5
"""Number of sampling intervals over which the handlers' idle time is measured if samples
are rare.
"""
UNSEEN_SHARE = 0.25
"""Largest share of `search.overload_max_s` that may lack samples when a held load is judged
[ratio].
"""


def overload_lasts(load: RunningLoad, now_s: float) -> bool:
    """Whether a load has overloaded the brokers for too long, on a cluster that other clients use.
    The result is True only if every goal judges the load as a lasting overload.

    The last `search.overload_max_s` seconds are judged like a trial of this length. For a testbed
    the result is always False, because a testbed has no other clients. If the offered load grows or
    is uneven, the number of acknowledged records is not judged.

    Args:
        load: the running load.
        now_s: the driver's time [s since the epoch].
    """
    config, load_start_s, pattern = load.context.config, load.channel.start_s, load.pattern
    if config.cluster.is_exclusive or load_start_s is None:
        return False
    start_s, samples = now_s - config.goal.search.overload_max_s, load.samples
    nodes = [each for each in samples.nodes if each.at_s >= max(start_s, load_start_s)]
    first_s = dict.fromkeys(load.brokers, now_s)
    first_s.update((each.broker_id, each.at_s) for each in reversed(nodes))
    if max(first_s.values(), default=now_s) > start_s + UNSEEN_SHARE * (now_s - start_s):
        return False
    grows = load.load.climb is not None
    is_even = pattern.profile is None and not grows and not isinf(pattern.records_per_s)
    is_even &= all(each.producer.options.arrivals == "fixed" for each in pattern.loads)
    acked = load.channel.acked() if is_even else []
    acked = [each for each in acked if each[0] >= acked[-1][0] - (now_s - start_s)]
    acked = [(at_s - acked[0][0], records - acked[0][1]) for at_s, records in acked]
    progress = _progress(load, replace(samples, nodes=nodes), (start_s, now_s), acked)
    return all(map(HELD_RULE.has_lasted, progress))


def _progress(
    load: RunningLoad, samples: Samples, window: tuple[float, float], acked: Acked
) -> Iterator[Progress]:
    """For each goal, the evidence in a window so far, from which the stop rule decides whether the
    verdict is certain.
    """
    slices = Slices(
        samples.nodes,
        sorted(load.brokers),
        window,
        load.interval_s,
        acked,
        load.pattern.records_per_s,
        load.facts,
        load.pattern.groups,
        samples.replicas,
    )
    return (progress_of(slices, each) for each in load.context.thresholds.values())


@dataclass
class EarlyEnd:
    """Watches a running trial, and ends its window once the verdict of every goal is certain.

    Args:
        load: the running load.
        may_begin_early: whether the window may begin during the warm-up, with fewer time slices, if
            the load is far above the limit.

    Attributes:
        kept_overloaded_s: if an overload ended a held load, the length of this overload [s];
            otherwise 0.
    """

    load: RunningLoad
    may_begin_early: bool = True
    kept_overloaded_s: float = 0.0

    def __post_init__(self) -> None:
        """Choose the rule for the early end of the window."""
        pattern = self.load.pattern
        self._phases, self._offered_per_s = pattern.phases, pattern.records_per_s
        self._is_held = self._phases.stop_rule is None
        self._rule = self._phases.stop_rule
        config = self.load.context.config
        self._most_s = config.goal.search.overload_max_s
        is_exclusive = config.cluster.is_exclusive
        is_bounded = self.may_begin_early and self._phases.volume_bytes is None
        if self._is_held and is_bounded and self._most_s < self._phases.load_s:
            self._rule = None if is_exclusive else HELD_RULE
        elif self._rule is not None and not is_exclusive:
            most = max(self._rule.error_rate, OTHERS_ERROR_RATE)
            self._rule = replace(self._rule, error_rate=most)
        self._written: list[tuple[float, int]] = []

    def watch(self) -> AbstractContextManager[None]:
        """Watch the load while the block lasts, and end its window at most once."""
        if self._rule is None or isinf(self._offered_per_s):
            return nullcontext()
        return self.load.looked_at("early-end", self.look, self._phases.sample_interval_s / 2)

    def look(self, now_s: float) -> float | None:
        """Check the load once. Begin the window if it may begin early, and end the window if the
        verdict is certain.

        Args:
            now_s: the driver's time [s since the epoch].

        Returns:
            The time until the next check [s]; None once the end of the window is set.
        """
        channel, rule, begun_s = self.load.channel, self._rule, self.load.begun_s
        if begun_s is None or channel.start_s is None or rule is None:
            return self._phases.sample_interval_s / 2
        load_s, is_begun = now_s - channel.start_s, now_s > begun_s
        has_begun_early = channel.begin_after_s is not None
        # The rule alone would end a load far above the limit too late.
        lasts_too_long = self.may_begin_early and self._most_s < (
            self._phases.warmup_s + rule.first * self._phases.sample_interval_s + NOTICE_S
        )
        is_far = has_begun_early or (lasts_too_long and self._is_overload_by_far(now_s, load_s))
        if is_far:
            rule = replace(rule, first=FEWEST)
        begin_s = load_s + NOTICE_S
        if not is_begun:
            if is_far and not has_begun_early and begin_s < self._phases.warmup_s:
                channel.begin_after(begin_s)
        elif (end_s := self._end_now(load_s, begun_s, now_s, rule)) is not None:
            channel.end_after(end_s)
            self.kept_overloaded_s = self._most_s if self._is_held else 0.0
            return None
        return self._phases.sample_interval_s / 2

    def _is_overload_by_far(self, now_s: float, load_s: float) -> bool:
        """Whether the samples of the last seconds show that the load is far above the limit."""
        full_s = load_s - self._phases.ramp_up_s
        self._written.append((full_s, self.load.channel.written))
        if full_s < SETTLED_S + SHORTFALL_S:
            return False
        # At least two samples of each broker, even if samples are rare.
        over_s = max(SHORTFALL_S, SAMPLES_OVER * self._phases.sample_interval_s)
        idle = lowest_idle(self.load.samples.nodes, self.load.brokers, now_s - over_s, now_s)
        is_saturated = idle is not None and idle <= SATURATED_IDLE
        return is_saturated or is_far_beyond(self._written, self._offered_per_s)

    def _end_now(self, load_s: float, begun_s: float, now_s: float, rule: StopRule) -> float | None:
        """The length [s] to which the window can be shortened; None while the window has to
        continue.
        """
        window = (begun_s, begun_s + self._phases.measure_s)
        found = _progress(self.load, self.load.samples, window, self.load.channel.acked())
        verdicts = [rule.verdict(progress) for progress in found]
        if self._is_held:
            if load_s < self._most_s - 2 * NOTICE_S:
                return None
            is_over = set(verdicts) == {Verdict.OVERLOADED} or (
                now_s - begun_s >= self._phases.sample_interval_s * FEWEST
                and overload_lasts(self.load, now_s)
            )
            verdicts = [Verdict.OVERLOADED if is_over else None]
        if None in verdicts:
            return None
        least_s = window_least_s(self.load.facts, is_sustained=Verdict.SUSTAINED in verdicts)
        end_s = max(now_s - begun_s + NOTICE_S, least_s)
        return end_s if end_s < self._phases.measure_s else None
