"""`redline traffic`: one traffic pattern at a fixed load, for soaks and as a test bench.

The same as a script for schedulers: spark-submit --py-files WHEEL jobs/traffic.py …
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import click

from jobs.config import Configuration, load
from jobs.console.events import Plan, PlanShown, Reporter, RunFinished, RunStarted, Table
from jobs.console.printing import make_reporter
from jobs.entry import run
from jobs.find_limit import require_consent
from jobs.options import load_options, pattern_options, run_options
from jobs.runs.estimate import trial_s
from jobs.runs.limit import logged_to, new_run_id
from jobs.runs.opening import Opening
from jobs.runs.recording import plain_ending, recorded
from jobs.runs.results import caveat_of
from jobs.trials.axes import Traffic, require_axis, traffic_at
from jobs.trials.context import Bench
from jobs.trials.fixed_load import Holder, held_in_full, held_plan
from metrics.reporting.held import HeldTrial, held_trial
from metrics.reporting.summary import RunSummary, write_summary
from metrics.units import UNKNOWN, format_load, format_mb_per_s, format_size, iso_utc
from search.errors import ConfigError, NoConclusionError


@dataclass(frozen=True)
class Hold:
    """What to hold, and for how long.

    Attributes:
        bpm: message size [B].
        load: on the goal's axis.
        trials: how many, when `duration_s` is None.
        duration_s: begin trials for so long [s].
    """

    bpm: int
    load: int
    trials: int = 1
    duration_s: float | None = None

    def traffic(self, config: Configuration) -> Traffic:
        """The pattern that is offered."""
        return traffic_at(config.workload, config.goal.search.axis, self.bpm, self.load)

    def trials_expected(self, one_s: float) -> int:
        """How many trials there will be when each takes so long [s]."""
        if self.duration_s is None:
            return self.trials
        return max(1, math.ceil(self.duration_s / one_s))

    def plan(self, config: Configuration, out: Path) -> Plan:
        """What will be done."""
        count = self.trials_expected(trial_s(config.workload))
        return held_plan(config, [self.traffic(config)] * count, out)


@click.command("traffic")
@pattern_options
@click.option("--goal", default="default", show_default=True, metavar="NAME|FILE",
              help="What counts as sustained: a file of conf/goals, or a path.")  # fmt: skip
@click.option("--message-bytes", type=click.IntRange(min=1),
              help="Size of a message.  [default: the workload's first]")  # fmt: skip
@click.option("--np", "--load", "amount", required=True, type=click.IntRange(min=1),
              help="Producers; or the load on the goal's axis, where it is another.")  # fmt: skip
@click.option("--trials", type=click.IntRange(min=1),
              help="How many trials, one after another.  [default: 1]")  # fmt: skip
@click.option("--duration", "duration_s", type=click.FloatRange(min=0, min_open=True),
              metavar="S", help="Instead: trials for so long, the last one in full.")  # fmt: skip
@run_options
@load_options
def traffic(  # noqa: PLR0913, PLR0917 - one for each option
    cluster: str,
    workload: str,
    goal: str,
    message_bytes: int | None,
    amount: int,
    trials: int | None,
    duration_s: float | None,
    overrides: tuple[str, ...],
    out: Path,
    tables: str | None,
    slots: int | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Hold one traffic pattern at a fixed load, trial after trial, each judged on its own.

    Nothing is searched for: use it to soak a cluster, or to see what one load does to it.
    """
    if trials is not None and duration_s is not None:
        raise ConfigError(
            f"--trials {trials} and --duration {duration_s:g} are both given; expected one of "
            "them; leave one out"
        )
    sized = () if message_bytes is None else (f"workload.message_bytes=[{message_bytes}]",)
    config = held_in_full(load(cluster, workload, goal, (*overrides, *sized)))
    require_axis(config)
    hold = Hold(config.workload.message_bytes[0], amount, trials or 1, duration_s)
    with make_reporter() as reporter:
        if dry_run:
            reporter.report(PlanShown(hold.plan(config, out)))
            return
        deed = f"hold {format_load(amount, config.goal.search.axis)} on it"
        require_consent(config, reporter, yes, deed)
        where = tables or str(out.absolute() / "tables")
        run_id = new_run_id(time.time())
        TrafficRun(config, hold, reporter, out.absolute(), where, run_id, slots).execute()


@dataclass
class TrafficRun:
    """Holds one pattern, and keeps what it saw however it ends.

    Args:
        out: the run's own folder is made in here.
        tables: path or catalog name of the Delta tables.
        run_id: names the run in tables and topics.
        slots: tasks that share the load; None for as many as Spark can run at once.
    """

    config: Configuration
    hold: Hold
    reporter: Reporter
    out: Path
    tables: str
    run_id: str
    slots: int | None = None
    trials: list[HeldTrial] = field(default_factory=list)
    _bench: Bench | None = None

    def execute(self) -> RunSummary:
        """Hold to the end, and leave summary.json and tables.

        Raises:
            NoConclusionError: no trial was valid.
            RedlineError: as opening the cluster, the session or the tables raises.
            KeyboardInterrupt: it was interrupted.
        """
        started_s, folder = time.time(), self.out / self.run_id
        self.reporter.report(RunStarted(self.run_id, self.hold.plan(self.config, folder)))
        try:
            with ExitStack() as stack:
                stack.enter_context(logged_to(folder / "run.log"))
                opening = Opening(
                    self.config, self.reporter, self.run_id, folder, self.tables, self.slots
                )
                self._bench = opening.open(stack)
                with recorded(self._bench, self.config):
                    self._hold(self._bench)
        except BaseException as error:
            self._conclude(started_s, folder, error)
            raise
        return self._conclude(started_s, folder, None)

    def _hold(self, bench: Bench) -> None:
        with Holder(bench, self.config.cluster.warm_up_max_s) as holder:
            for left in self._turns():
                why = "a fixed load" if left > 1 else "a fixed load, for the last time"
                trial = holder.hold(self.hold.bpm, self.hold.load, why, left)
                self.trials.append(held_trial(trial))
        if not any(trial.is_valid for trial in self.trials):
            raise NoConclusionError(
                f"none of {len(self.trials)} trials was valid; the first one: "
                f"{'; '.join(self.trials[0].reasons)}"
            )

    def _turns(self) -> Iterator[int]:
        """How many trials are left, the next one included, as long as there is one."""
        start_s, limit_s = time.monotonic(), self.hold.duration_s
        if limit_s is None:
            yield from range(self.hold.trials, 0, -1)
            return
        one_s = trial_s(self.config.workload)
        while (left_s := limit_s - (time.monotonic() - start_s)) > 0:
            yield max(1, math.ceil(left_s / one_s))

    def _conclude(self, started_s: float, folder: Path, error: BaseException | None) -> RunSummary:
        ending, finished_s, bench = plain_ending(error), time.time(), self._bench
        topic, consumers = self.config.workload.topic, self.config.workload.consumers
        summary = RunSummary(
            run_id=self.run_id,
            started_at=iso_utc(started_s),
            finished_at=iso_utc(finished_s),
            cluster=self.config.cluster.name,
            workload=self.config.workload.name,
            goal=self.config.goal_names,
            boundaries=(),
            brokers=bench.brokers if bench else 0,
            status=ending.status,
            exit_code=ending.exit_code,
            error=ending.error,
            caveat=caveat_of(self.config, bench.caveats if bench else ()),
            environment=bench.environment if bench else {},
            replication_factor=topic.replication_factor,
            consumer_groups=consumers.groups,
            trials=tuple(self.trials),
        )
        path = folder / "summary.json"
        write_summary(summary, path)
        if self.trials:
            title = f"{self.config.workload.name} held on {self.config.cluster.name}"
            self.reporter.report(trials_table(title, self.trials))
        files = (("summary", str(path)), ("tables", self.tables))
        self.reporter.report(RunFinished(summary, finished_s - started_s, files))
        return summary


def trials_table(title: str, trials: Sequence[HeldTrial]) -> Table:
    """Trials of fixed loads for people."""
    columns = (
        "#", "size", "load", "offered MB/s", "achieved MB/s", "low idle", "p50 ms", "p99 ms",
        "verdict",
    )  # fmt: skip
    rows = tuple(
        (
            str(each.trial),
            format_size(each.bpm),
            str(each.load),
            format_mb_per_s(each.offered_mb_per_s),
            format_mb_per_s(each.achieved_mb_per_s),
            _number(each.handler_idle_min, 2),
            _number(each.latency_p50_ms, 1),
            _number(each.latency_p99_ms, 1),
            each.verdict,
        )
        for each in trials
    )
    return Table(title, columns, rows)


def _number(value: float | None, digits: int) -> str:
    return UNKNOWN if value is None else f"{value:.{digits}f}"


if __name__ == "__main__":
    run(traffic)
