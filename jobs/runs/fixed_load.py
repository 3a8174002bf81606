"""A run at a fixed load: one traffic pattern is offered in trials, and each trial is judged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.config import Configuration, describe
from jobs.config.loading import require_endless, require_token
from jobs.console.events import Plan, Table, note
from jobs.runs.estimate import (
    backlog_bytes,
    describe_producer,
    mean_replicas,
    on_disk,
    starting_s,
    trial_s,
)
from jobs.runs.lifecycle import Body, RunState
from jobs.runs.outcome import RunOutcome, outcome_of
from jobs.runs.results import conclude_run, summary_of_run
from jobs.trials.measure import Rig, SearchProgress, TrialMeasurer, repeat_until_valid
from metrics.common.bounds import OfferedRate
from metrics.common.errors import ConfigError, GuardStopError, NoConclusionError, RegressionError
from metrics.judging.disk_proof import proof_of
from metrics.reporting.limit_answer import LoadAnswer, answer_of_load, proof_words
from metrics.reporting.report_page import ceilings_of
from metrics.traffic.axes import NP
from metrics.traffic.profile import RateProfile
from metrics.trial.trial import Trial
from metrics.units import UNKNOWN, format_mb_per_s, format_size
from search.model import Verdict


@dataclass(frozen=True)
class FixedLoad:
    """A fixed load, and its duration.

    Attributes:
        message_bytes: message size [B].
        load: the load on the goal's axis.
        trials: number of trials, if `duration_s` is None.
        duration_s: duration of a continuous load that is judged in windows [s]; None for separate
            trials.
        must_be_sustained: whether an OVERLOADED trial makes the run fail.
        profile: the course of the load over time, in shares of the full load; requires
            `duration_s`.
        repeats_invalid: whether INVALID trials are repeated, at most `search.invalid_repeats_max`
            times.
        origin: a sentence that explains how the load was computed from a rate; empty without a
            given rate.
    """

    message_bytes: int
    load: int
    trials: int = 1
    duration_s: float | None = None
    must_be_sustained: bool = False
    profile: RateProfile | None = None
    repeats_invalid: bool = False
    origin: str = ""

    def trials_expected(self, window_s: float) -> int:
        """The number of trials if each window has this length [s]."""
        if self.duration_s is None:
            return self.trials
        return max(1, math.ceil(self.duration_s / window_s - 1e-9))


class FixedLoadRun(Body):
    """Offers one traffic pattern at a fixed load.

    Attributes:
        trials: the trials until now, which remain after an error or an interrupt.
    """

    measurement = "load"

    def __init__(self, config: Configuration, load: FixedLoad) -> None:
        if load.duration_s is not None:
            _require_windows(config, load)
            require_token(config, load.duration_s, "the load (--duration)")
        self.config = config
        self.load = load
        self.trials: list[Trial] = []

    def plan(self, out: Path) -> Plan:
        """The plan of the trials, or of the continuous load."""
        config, one_s = self.config, trial_s(self.config.workload)
        trial = config.workload.trial
        count = self.load.trials_expected(trial.measure_s)
        pattern = config.pattern(self.load.message_bytes, self.load.load)
        duration_s, written = count * one_s, count * pattern.planned_bytes
        if self.load.duration_s is not None:
            length_s, beside_s = count * trial.measure_s, one_s - trial.measure_s
            phases = replace(trial, measure_s=length_s)
            whole = pattern.with_phases(phases).with_profile(self.load.profile)
            one_s, duration_s, written = trial.measure_s, length_s + beside_s, whole.planned_bytes
        written += backlog_bytes(config.workload, self.load.message_bytes)
        brokers = config.cluster.brokers_known
        peak = pattern.mb_per_s * (1.0 if self.load.profile is None else self.load.profile.peak)
        replicated = 1e6 * peak * mean_replicas(config.workload)
        return Plan(
            cluster=config.cluster.name,
            workload=config.workload.name,
            goal=config.goal_names,
            brokers=brokers,
            message_bytes=(pattern.message_bytes,),
            producer=describe_producer(config.workload),
            resolution=None,
            trial_s=one_s,
            trials_estimated=count,
            duration_s=duration_s,
            write_bytes_max=written if math.isfinite(written) else None,
            out=out,
            notes=(
                *filter(None, (self.load.origin, config.cluster.topics_note)),
                *config.cluster.caveats,
            ),
            starting_s=starting_s(config.cluster),
            peak_mb_per_s=peak,
            disk_bytes_max=on_disk(config.workload, brokers, written, replicated),
        )

    def measure(self, run: RunState) -> None:
        """Offer the load until its end.

        Raises:
            NoConclusionError: no trial was valid.
        """
        try:
            with Rig.open(run.context, self.config.cluster.warm_up_max_s) as rig:
                self._offer(rig)
        except GuardStopError:
            self.trials[:] = run.context.history.trials  # includes the trial that the guard ended
            raise
        if (answer := self._answer()).carries is None and (text := answer.text or self._cut_short):
            raise NoConclusionError(text)

    @property
    def _cut_short(self) -> str:
        """The reason why a continuous load ended early; empty if it did not end early."""
        load, trials = self.load, self.trials
        if load.duration_s is None or not trials:
            return ""
        expected = load.trials_expected(self.config.workload.trial.measure_s)
        return trials[-1].reasons[0].text if len(trials) < expected else ""

    def _answer(self, ended: str = "") -> LoadAnswer:
        """Whether the cluster sustains the load, judged by the trials until now.

        Args:
            ended: the reason why the run ended early; empty if it did not end early.
        """
        valid = [each for each in self.trials if each.is_valid]
        counted = valid if valid and self.load.repeats_invalid else self.trials
        ceilings = ceilings_of(describe(self.config.goal))
        ended = ended or self._cut_short
        return answer_of_load(counted, ceilings, self.load.duration_s is not None, ended)

    def _offer(self, rig: Rig) -> None:
        load = self.load
        if load.duration_s is not None:
            count = load.trials_expected(self.config.workload.trial.measure_s)
            progress = SearchProgress("a load without a gap", count)
            measurer = TrialMeasurer(rig, load.message_bytes, progress)
            measurer.hold_windows(load.load, count, self.trials, load.profile)
            return

        def make(left: int) -> Trial:
            why = "a fixed load" if left > 1 else "a fixed load, the last trial"
            return rig.trial(load.message_bytes, load.load, why, left)

        if load.repeats_invalid:
            spare = self.config.goal.search.invalid_repeats_max
            repeat_until_valid(make, load.trials, spare, self.trials)
            return
        for left in range(load.trials, 0, -1):
            self.trials.append(make(left))

    def outcome(self, error: BaseException | None) -> RunOutcome:
        """The outcome of the run: `overloaded` if the load must be sustained and a trial was
        OVERLOADED; otherwise `done`. An error of the run always determines the outcome.
        """
        over = [trial for trial in self.trials if trial.verdict is Verdict.OVERLOADED]
        if error is not None or not (over and self.load.must_be_sustained):
            return outcome_of(error)
        return RunOutcome(
            "overloaded",
            RegressionError.exit_code,
            f"{len(over)} of {len(self.trials)} trials were OVERLOADED, the first one: "
            f"{over[0].reasons[0].text}",
        )

    def conclude(self, run: RunState, outcome: RunOutcome) -> None:
        """Write summary.json and the report, and show the table of trials."""
        summary = summary_of_run(
            run, self.config, outcome, trials=self.trials, measurement=self.measurement
        )
        if self.measurement == FixedLoadRun.measurement:
            answer = self._answer()
            if outcome.status not in ("done", "overloaded") and outcome.error != answer.text:
                is_named = outcome.error == outcome.status  # such as `interrupted`
                answer = self._answer(f"{'the run was ' * is_named}{outcome.error}")
            summary = replace(summary, carries=answer.carries, answer=answer.text)
        if self.trials:
            title = f"workload {self.config.workload.name} on cluster {self.config.cluster.name}"
            run.order.reporter.report(trials_table(title, self.trials))
            if text := proven_trial_words(self.trials):
                note(run.order.reporter, text)
        conclude_run(run, self.config, summary)


def at_rate(
    config: Configuration, message_bytes: int, rate: OfferedRate
) -> tuple[Configuration, int, str]:
    """Choose a number of producers and the rate of each producer, so that they offer a total rate.

    The chosen rate of a producer is as near as possible to the rate in the workload.

    Args:
        config: the configuration.
        message_bytes: message size [B].
        rate: the total rate of all producers.

    Returns:
        Three values: the configuration, which contains the new rate of each producer; the number of
        producers; and a sentence about this rate and this number.

    Raises:
        ConfigError: the producers have no fixed rate, or the load is not a number of producers.
    """
    if config.axis is not NP:
        raise ConfigError(
            f"--rate {rate} on an axis that counts {config.axis.words}; expected an axis that "
            f"counts producers; use --load (in {config.axis.words})"
        )
    one = config.pattern(message_bytes, 1)
    if one.producer.closed_loop:
        raise ConfigError(
            f"--rate {rate} with producer.rate unlimited; expected producers with a fixed rate; "
            "set rate_bytes_per_s or rate_records_per_s, or use --np"
        )
    wanted = rate.per_s / (message_bytes if rate.is_payload else 1)
    producers = max(1, round(wanted / one.records_per_s))
    options = config.workload.producer
    rates = ("rate_bytes_per_s", "rate_records_per_s")
    name, now = next((each, getattr(options, each)) for each in rates if getattr(options, each))
    own = now * wanted / (producers * one.records_per_s)
    found = config.with_workload(producer=replace(options, **{name: own}))
    each, before = (OfferedRate(one, name == rates[0]) for one in (own, now))
    words = f"{rate} is offered by {NP.amount(producers)} of {each}"
    if own != now:
        words += f"; the workload's rate of a producer is {before}"
    return found, producers, words


def _require_windows(config: Configuration, load: FixedLoad) -> None:
    """Raise an error if a setting is not possible with a continuous load.

    Raises:
        ConfigError: the client is another one than `wire`; or the configuration has a volume or an
            early end; or the profile does not fit the rate, the arrivals or the ramp.
    """
    parts, producer = config.workload.parts, config.workload.producer
    clients = {part.producer.client for part in parts}
    clients |= {part.consumers.client for part in parts if part.consumers.groups}
    if clients != {"wire"}:
        raise ConfigError(
            f"--duration with the client {', '.join(sorted(clients - {'wire'}))}; expected the "
            "client wire, because no other client counts records for each window; use --trials, "
            "or set the client wire"
        )
    require_endless(config)
    ramp_up_s = config.workload.trial.ramp_up_s
    if load.profile is not None and producer.rate is not None:
        raise ConfigError(
            f"--profile {load.profile.name} with producer.rate {producer.rate}; expected a rate "
            "that the profile can change; set rate_bytes_per_s or rate_records_per_s, or omit "
            "--profile"
        )
    producer = next((p.producer for p in parts if p.producer.arrivals == "bursts"), producer)
    if load.profile is not None and (producer.arrivals == "bursts" or ramp_up_s):
        raise ConfigError(
            f"--profile {load.profile.name} with producer.arrivals {producer.arrivals} and "
            f"trial.ramp_up_s {ramp_up_s:g}; expected arrivals fixed or poisson and no ramp, "
            "because the profile already changes the rate; change both settings"
        )


def proven_trial_words(trials: Sequence[Trial]) -> str:
    """A sentence about the sustained trial that shows best how long the load lasts. If some
    sustained trials prove that disks write the load, only these trials are candidates. The sentence
    is about the longest candidate. The sentence is empty if no trial is sustained.
    """
    sustained = [(each, proof_of(each)) for each in trials if each.verdict is Verdict.SUSTAINED]
    if not sustained:
        return ""
    trial, proof = max(sustained, key=lambda pair: (bool(pair[1].on_disk), pair[1].duration_s))
    payload = format_mb_per_s(trial.pattern.mb_per_s)
    return f"{payload} MB/s, trial {trial.number}: {proof_words(proof)}"


def trials_table(title: str, trials: Sequence[Trial]) -> Table:
    """The table of trials at a fixed load."""
    columns = (
        "#", "size", "load", "offered MB/s", "achieved MB/s", "low idle", "p50 ms", "p99 ms",
        "verdict",
    )  # fmt: skip
    return Table(title, columns, tuple(map(_cells, trials)))


def _cells(trial: Trial) -> tuple[str, ...]:
    client = trial.evidence.client
    return (
        str(trial.number),
        format_size(trial.pattern.message_bytes),
        str(trial.load),
        "closed loop"
        if trial.pattern.producer.closed_loop
        else format_mb_per_s(client.offered_mb_per_s),
        format_mb_per_s(client.achieved_mb_per_s),
        _number(trial.evidence.handler_idle_min, 2),
        _number(client.latency.p50_ms, 1),
        _number(client.latency.p99_ms, 1),
        trial.verdict.value,
    )


def _number(value: float | None, digits: int) -> str:
    return UNKNOWN if value is None or math.isnan(value) else f"{value:.{digits}f}"
