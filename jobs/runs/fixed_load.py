"""One traffic pattern held at a fixed load, trial after trial, each judged on its own."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.config import Configuration
from jobs.console.events import Plan, RunFinished, Table
from jobs.runs.endings import Ending, ending_of
from jobs.runs.estimate import TESTBED_CAVEAT, describe_producer, trial_s
from jobs.runs.lifecycle import Body, Life
from jobs.runs.results import summary_of_run
from jobs.trials.holding import Holder
from metrics.reporting.summary import write_summary
from metrics.trial.trial import Trial
from metrics.units import UNKNOWN, format_mb_per_s, format_size
from search.errors import NoConclusionError, RegressionError
from search.model import Verdict


@dataclass(frozen=True)
class FixedLoad:
    """What to hold, and for how long.

    Attributes:
        bpm: message size [B].
        load: on the goal's axis.
        trials: how many, when `duration_s` is None.
        duration_s: begin trials for so long [s].
        must_be_sustained: whether a trial that is OVERLOADED makes the run a failure.
    """

    bpm: int
    load: int
    trials: int = 1
    duration_s: float | None = None
    must_be_sustained: bool = False

    def trials_expected(self, one_s: float) -> int:
        """How many trials there will be when each takes so long [s]."""
        if self.duration_s is None:
            return self.trials
        return max(1, math.ceil(self.duration_s / one_s))

    def turns(self, one_s: float) -> Iterator[int]:
        """How many trials are left, the next one included, as long as there is one."""
        start_s = time.monotonic()
        if self.duration_s is None:
            yield from range(self.trials, 0, -1)
            return
        while (left_s := self.duration_s - (time.monotonic() - start_s)) > 0:
            yield max(1, math.ceil(left_s / one_s))


class FixedLoadRun(Body):
    """Holds one pattern, and keeps what it saw however it ends.

    Attributes:
        trials: made so far.
    """

    def __init__(self, config: Configuration, load: FixedLoad) -> None:
        self.config = config
        self.load = load
        self.trials: list[Trial] = []

    @property
    def configurations(self) -> Mapping[str, Configuration]:
        """The one."""
        return {"": self.config}

    def plan(self, out: Path) -> Plan:
        """Trial after trial."""
        config, one_s = self.config, trial_s(self.config.workload)
        pattern, count = (
            config.pattern(self.load.bpm, self.load.load),
            self.load.trials_expected(one_s),
        )
        testbed = config.cluster.testbed
        return Plan(
            cluster=config.cluster.name,
            workload=config.workload.name,
            goal=config.goal_names,
            brokers=testbed.brokers if testbed else None,
            message_bytes=(pattern.bpm,),
            producer=describe_producer(config.workload),
            resolution=None,
            trial_s=one_s,
            trials_estimated=count,
            duration_s=count * one_s,
            write_bytes_max=count * pattern.planned_bytes,
            out=out,
            notes=(TESTBED_CAVEAT,) if testbed else (),
        )

    def measure(self, life: Life) -> None:
        """Hold to the end.

        Raises:
            NoConclusionError: no trial was valid.
        """
        with Holder(life.context, self.config.cluster.warm_up_max_s) as holder:
            for left in self.load.turns(trial_s(self.config.workload)):
                why = "a fixed load" if left > 1 else "a fixed load, for the last time"
                self.trials.append(holder.hold(self.load.bpm, self.load.load, why, left))
        if not any(trial.is_valid for trial in self.trials):
            first = "; ".join(f"{each.indicator}: {each.text}" for each in self.trials[0].reasons)
            raise NoConclusionError(
                f"none of {len(self.trials)} trials was valid; the first one: {first}"
            )

    def ending(self, error: BaseException | None) -> Ending:
        """By the error, or by the verdicts where they were asked for."""
        over = [trial for trial in self.trials if trial.verdict is Verdict.OVERLOADED]
        if error is not None or not (over and self.load.must_be_sustained):
            return ending_of(error)
        return Ending(
            "overloaded",
            RegressionError.exit_code,
            f"{len(over)} of {len(self.trials)} trials were OVERLOADED, the first one: "
            f"{over[0].reasons[0].text}",
        )

    def conclude(self, life: Life, ending: Ending) -> None:
        """Leave summary.json, and show the trials."""
        summary = summary_of_run(life, self.config, ending, trials=self.trials)
        path, reporter = life.order.folder / "summary.json", life.order.reporter
        write_summary(summary, path)
        if self.trials:
            title = f"{self.config.workload.name} held on {self.config.cluster.name}"
            reporter.report(trials_table(title, self.trials))
        files = (("summary", str(path)), ("tables", life.order.tables))
        reporter.report(RunFinished(summary, time.time() - life.started_s, files))


def trials_table(title: str, trials: Sequence[Trial]) -> Table:
    """Trials of fixed loads for people."""
    columns = (
        "#", "size", "load", "offered MB/s", "achieved MB/s", "low idle", "p50 ms", "p99 ms",
        "verdict",
    )  # fmt: skip
    return Table(title, columns, tuple(map(_cells, trials)))


def _cells(trial: Trial) -> tuple[str, ...]:
    client = trial.evidence.client
    return (
        str(trial.number),
        format_size(trial.pattern.bpm),
        str(trial.load),
        format_mb_per_s(client.offered_mb_per_s),
        format_mb_per_s(client.achieved_mb_per_s),
        _number(trial.evidence.handler_idle_min, 2),
        _number(client.latency.p50_ms, 1),
        _number(client.latency.p99_ms, 1),
        trial.verdict.value,
    )


def _number(value: float | None, digits: int) -> str:
    return UNKNOWN if value is None or math.isnan(value) else f"{value:.{digits}f}"
