"""The execution of a sweep: each case is a run, on brokers shared by cases with equal clusters."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from jobs.campaigns.sweep.cases import Sweep, case_of
from jobs.campaigns.sweep.results import finished, results_of
from jobs.campaigns.sweep.turns import Turn, turns
from jobs.cluster.opening import OpenCluster, open_cluster
from jobs.console.events import PhaseStarted, Reporter, warn
from jobs.runs.budget import TimeBudget
from jobs.runs.context_factory import open_session
from jobs.runs.lifecycle import Body, RunOrder, execute
from jobs.runs.measurement import explaining
from jobs.runs.outcome import RunOutcome, outcome_of
from jobs.trials.context import Session
from metrics.common.errors import ConfigError, NoConclusionError
from metrics.comparing.sweeps import Result
from metrics.reporting.files import write_atomic
from metrics.reporting.summary import RunSummary
from metrics.tables.sweep_case import SweepCase

PLAN = "experiment.json"
"""The file in a sweep's folder with its experiment and cases, which --resume checks."""


@dataclass(frozen=True)
class SweepOrder:
    """The settings of a sweep from its command line.

    Attributes:
        sweep_id: the id of the sweep, its folder and the runs of its cases.
        folder: the folder of the sweep.
        budget_s: the time after the start until which every begun case must end [s].
        expected_s: estimates the duration of a turn [s].
        json_file: a further file for sweep.json; None without one.
        until_s: the time that no load may pass; None for none [s since the epoch].
    """

    sweep: Sweep
    reporter: Reporter
    sweep_id: str
    folder: Path
    tables: str
    slots: int | None = None
    locks: bool = True
    budget_s: float | None = None
    expected_s: Callable[[Turn], float] = lambda _: 0.0
    json_file: Path | None = None
    until_s: float | None = None


@dataclass
class SweepExecution:
    """A sweep in progress; it keeps all results after an error or an interrupt.

    Attributes:
        results: the results of the measured cases, with and without an answer.
        left: the turns that did not fit into the budget.
        nearby: the limit of the previous case, near which the next search begins.
    """

    order: SweepOrder
    results: list[Result] = field(default_factory=list)
    left: list[Turn] = field(default_factory=list)
    nearby: int | None = None
    started_s: float = field(default_factory=time.time)
    _session: Session | None = None

    def run(self) -> None:
        """Measure all cases that were not measured before.

        Raises:
            ConfigError: the sweep began with another experiment.
            RedlineError: as the run of a case raises, except for a case without a conclusion.
        """
        order = self.order
        self._keep_plan()
        groups = [[t for t in group if not self._has_results(t)] for group in turns(order.sweep)]
        with ExitStack() as stack:
            open_spark = partial(self._open_spark, stack)
            for group in filter(None, groups):
                with ExitStack() as brokers:
                    cluster = group[0].case.config.cluster
                    opened = open_cluster(cluster, order.reporter, brokers, open_spark)
                    open_spark()
                    for turn in group:
                        self._measure(turn, opened)

    def _open_spark(self, stack: ExitStack) -> None:
        """Open one session and the tables, for all cases."""
        if self._session is not None:
            return
        order = self.order
        order.reporter.report(PhaseStarted("starting Spark"))
        least = max(case.config.workload.slots_least for case in order.sweep.cases)
        self._session = open_session(stack, order.slots, order.folder / "spark.log", least)
        stack.callback(self._session.tables(order.tables).close)

    def _keep_plan(self) -> None:
        """Write the experiment to the sweep's folder, or compare it with the file that exists."""
        sweep, path = self.order.sweep, self.order.folder / PLAN
        plan = {
            "experiment": sweep.experiment.model_dump(mode="json"),
            "cases": {f"{n}": case.name for n, case in enumerate(sweep.cases, 1)},
        }
        text = json.dumps(plan, indent=2, sort_keys=True, default=str) + "\n"
        if not path.exists():
            write_atomic(path, text)
        elif path.read_text(encoding="utf-8") != text:
            raise ConfigError(
                f"the sweep {self.order.sweep_id} began with another experiment ({path}); expected "
                "the same, as cases of two experiments do not compare; give the same file and "
                "options, or start a new sweep"
            )

    def folders(self, turn: Turn) -> list[Path]:
        """The folders of this turn's runs, the first try first."""
        own = f"{self.order.sweep_id}-{turn.name}"
        return sorted(self.order.folder.glob(f"{own}*"))

    def _has_results(self, turn: Turn) -> bool:
        """Whether the turn was measured before; its results are taken over then."""
        for folder in self.folders(turn):
            summary = finished(folder)
            if summary is not None:
                self._add_results(turn, summary)
                return True
        return False

    def _add_results(self, turn: Turn, summary: RunSummary) -> None:
        measurement = self.order.sweep.measurement
        self.results.extend(results_of(measurement, turn.case.shown, turn.repeat, summary))

    def _measure(self, turn: Turn, opened: OpenCluster) -> None:
        order, case = self.order, turn.case
        budget = TimeBudget(order.budget_s, self.started_s)
        named = f"case {case.name}, repeat {turn.repeat}"
        if why := budget.refusal(order.expected_s(turn)):
            self.left.append(turn)
            warn(order.reporter, f"{named} is not begun: {why}")
            return
        tries = len(self.folders(turn))
        run_id = f"{order.sweep_id}-{turn.name}{f'-{tries + 1}' if tries else ''}"
        order.reporter.report(PhaseStarted(named))
        run = RunOrder(
            order.reporter,
            order.folder,
            order.tables,
            run_id,
            order.slots,
            locks=order.locks,
            sweep_case=SweepCase(
                order.sweep_id,
                order.sweep.experiment.name,
                case.name,
                turn.repeat,
                case.shown,
            ),
            until_s=order.until_s,
        )
        try:
            execute(body_of(order.sweep, turn, self.nearby), run, opened, self._session)
        except NoConclusionError as error:  # other cases may still have an answer
            warn(order.reporter, f"{named}: {error}")
        summary = finished(run.folder)
        assert summary is not None, "every run writes its summary at its end"
        self._add_results(turn, summary)
        limits = [load for each in summary.boundaries if (load := each.loads[0])]
        self.nearby = limits[0] if limits else self.nearby

    def outcome(self, error: BaseException | None) -> RunOutcome:
        """The outcome by the error, or by the cases without an answer."""
        if error is not None:
            return outcome_of(error)
        silent = sorted({each.why for each in self.results if each.value is None})
        lacking = sum(each.value is None for each in self.results)
        if self.left or lacking or not self.results:
            parts = [f"{lacking} of {len(self.results)} figures are missing"] if lacking else []
            parts += [f"{len(self.left)} cases did not fit into the budget"] * bool(self.left)
            reasons = f": {'; '.join(silent[:3])}" if silent else ""
            text = f"{' and '.join(parts) or 'nothing was measured'}{reasons}"
            return RunOutcome("no conclusion", NoConclusionError.exit_code, text)
        return RunOutcome()


def body_of(sweep: Sweep, turn: Turn, nearby: int | None = None) -> Body:
    """The body of a case's run.

    Args:
        nearby: a limit near which a search may begin.
    """
    case = case_of(turn.experiment, turn.case.config)
    with explaining(sweep.measurement):
        return sweep.measurement.body(replace(case, nearby=nearby))
