"""The execution of a sweep from its command line: a dry run, or the whole sweep."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from jobs.campaigns.sweep.answer import answer_of
from jobs.campaigns.sweep.cases import Sweep
from jobs.campaigns.sweep.execution import SweepExecution, SweepOrder, body_of
from jobs.campaigns.sweep.turns import Turn, turns
from jobs.cluster.lock import holder_text
from jobs.console.events import Plan, RunStarted, Table, note, warn
from jobs.live.followers import reporter_of
from jobs.runs.artifacts import ArtifactWriter
from jobs.runs.estimate import LOOKS_S, SPARK_S, brokers_s
from jobs.runs.launch import may_begin
from jobs.runs.lifecycle import new_run_id
from jobs.runs.options import RunOptions
from jobs.runs.outcome import RunOutcome, finish
from jobs.runs.run_lock import run_lock
from metrics.common.errors import ConfigError, RedlineError
from metrics.reporting.files import write_atomic


def execute_sweep(
    sweep: Sweep, options: RunOptions, resume: str | None, budget_s: float | None
) -> int:
    """Execute a sweep with the options of its command line, and return the exit code.

    Raises:
        ConfigError: consent is missing, or the sweep to resume does not exist.
        RedlineError: as `SweepExecution.run` raises.
    """
    configs = [case.config for case in sweep.cases]
    plan = SweepPlan(sweep, options.out)
    with reporter_of(options.metrics_at, options.notify_from) as reporter:
        if not may_begin(configs, plan.whole, options, reporter):
            return 0
        sweep_id = resume or new_run_id(time.time())
        folder = options.out.absolute() / sweep_id
        if resume is not None and not folder.exists():
            raise ConfigError(
                f"--resume names the sweep {resume}, and {folder} does not exist; expected a sweep "
                "of this --out; correct the id, or name the sweep's --out"
            )
        reporter.report(RunStarted(sweep_id, plan.whole()))
        order = SweepOrder(
            sweep,
            reporter,
            sweep_id,
            folder,
            options.tables_or_default,
            options.slots,
            options.locks,
            sweep.experiment.budget_s if budget_s is None else budget_s,
            plan.duration_s_of,
            options.json_file,
            options.until_s,
        )
        with run_lock(folder, holder_text(sweep_id, time.time())):
            return _execute_sweep(SweepExecution(order))


def _execute_sweep(sweeping: SweepExecution) -> int:
    try:
        sweeping.run()
    except BaseException as error:
        try:
            _conclude(sweeping, sweeping.outcome(error))
        except RedlineError as second:
            warn(sweeping.order.reporter, str(second))
        raise
    outcome = sweeping.outcome(None)
    return finish(outcome, sweeping.order.reporter, partial(_conclude, sweeping, outcome))


class SweepPlan:
    """The plan of a sweep; each case is forecast once, also with several repeats.

    Args:
        out: the folder that contains the sweep's folder.
    """

    def __init__(self, sweep: Sweep, out: Path) -> None:
        self._sweep = sweep
        self._out = out
        self._plans: dict[str, Plan] = {}

    def of(self, turn: Turn) -> Plan:
        """The plan of one turn."""
        if turn.case.name not in self._plans:
            self._plans[turn.case.name] = body_of(self._sweep, turn).plan(self._out)
        return self._plans[turn.case.name]

    def duration_s_of(self, turn: Turn) -> float:
        """The estimated duration of a turn [s]."""
        return self.of(turn).duration_s

    def whole(self) -> Plan:
        """The plan of the whole sweep: the sum of its turns, and the starts of their brokers."""
        sweep, experiment = self._sweep, self._sweep.experiment
        groups = list(turns(sweep))
        plans = [self.of(turn) for group in groups for turn in group]
        written = [each.write_bytes_max for each in plans]
        # Brokers start for each group of cases; looks are for each case.
        started_s = sum(brokers_s(group[0].case.config.cluster) for group in groups)
        starting_s = SPARK_S + started_s + len(plans) * LOOKS_S
        values = {path: dict.fromkeys(case.settings[path] for case in sweep.cases)
                  for path in experiment.varied}  # fmt: skip
        varied = "; ".join(f"{path}: {', '.join(each)}" for path, each in values.items())
        first = plans[0]
        return replace(
            first,
            trials_estimated=sum(each.trials_estimated for each in plans),
            duration_s=sum(each.duration_s for each in plans),
            starting_s=starting_s,
            peak_mb_per_s=max((each.peak_mb_per_s or 0.0 for each in plans), default=None),
            disk_bytes_max=max((each.disk_bytes_max or 0.0 for each in plans), default=None),
            write_bytes_max=sum(each or 0.0 for each in written) if all(written) else None,
            notes=(
                f"experiment {experiment.name}: {experiment.description}",
                f"{len(sweep.cases)} cases, {len(plans)} measurements; varied: {varied}",
                *first.notes,
            ),
        )


def _conclude(sweeping: SweepExecution, outcome: RunOutcome) -> None:
    """Write sweep.json, the page and the chart, and report the results."""
    # Altair is a tenth of the imports of a command that ends without a result.
    from metrics.reporting.sweep.charts import write_sweep_chart
    from metrics.reporting.sweep.page import sweep_page

    order, reporter = sweeping.order, sweeping.order.reporter
    answer = answer_of(sweeping, outcome)
    file, page = order.folder / "sweep.json", order.folder / "sweep.html"
    files = ArtifactWriter()
    document = answer.document()
    files.write_answer_file(
        "answer", file, order.json_file, lambda path: write_atomic(path, document)
    )
    files.write("page", page, lambda: write_atomic(page, sweep_page(answer)))
    if answer.results:
        reporter.report(Table(answer.experiment, answer.columns, answer.rows))
    for text in (*answer.meanings, *answer.sentences, *answer.advices, *answer.caveats):
        note(reporter, text)
    if any(each.value for each in answer.results):
        chart = order.folder / "sweep.png"
        files.write("chart", chart, lambda: write_sweep_chart(answer, chart))
    for what, where in (*files.written, ("tables", order.tables)):
        note(reporter, f"{what}: {where}")
    files.require_all("fix the disk, then write them with --resume, which measures no case twice")
