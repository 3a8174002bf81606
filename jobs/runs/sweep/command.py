"""From a command line to a sweep: its plan shown, or all of it done and told."""

from __future__ import annotations

import time
from pathlib import Path

from jobs.cluster.opening import require_startable
from jobs.config import Cluster
from jobs.config.experiment import Sweep
from jobs.console.events import Plan, PlanShown, RunStarted, note
from jobs.console.printing import make_reporter
from jobs.runs.asked import Asked
from jobs.runs.consent import require_consent
from jobs.runs.endings import Ending
from jobs.runs.estimate import caveat_of
from jobs.runs.launch import OVERLOAD
from jobs.runs.lifecycle import new_run_id
from jobs.runs.sweep.answer import (
    axes_of,
    caveats,
    effects_in,
    results_table,
    sentences,
    short,
    unit_of,
    write_answer,
)
from jobs.runs.sweep.running import Sweeping, SweepOrder, body_of
from jobs.runs.sweep.turns import Turn, turns
from metrics.reporting.sweep_charts import write_sweep_chart
from metrics.units import iso_utc
from search.errors import ConfigError

OPENING_S = 35.0
"""Starting brokers, and opening the metrics, once for each group of cases [s]; measured 25 to 45
on two cores, the warm-up of cold JVMs not counted."""


def carry_out(sweep: Sweep, asked: Asked, resume: str | None, budget_s: float | None) -> int:
    """Carry out a sweep as its command line asks; the exit code.

    Raises:
        ConfigError: nobody consents, or there is no such sweep to resume.
        RedlineError: as `Sweeping.run` raises.
    """
    out = asked.out.absolute()
    with make_reporter() as reporter:
        for cluster in _clusters(sweep):
            require_startable(cluster)
        plan = plan_of_sweep(sweep, asked.out)
        if asked.dry_run:
            reporter.report(PlanShown(plan))
            return 0
        require_consent([case.config for case in sweep.cases], reporter, asked.yes, OVERLOAD)
        sweep_id = resume or new_run_id(time.time())
        folder = out / sweep_id
        if resume is not None and not folder.exists():
            raise ConfigError(
                f"--resume names the sweep {resume}, and there is no {folder}; expected one that "
                "was begun with this --out; name it as its folder"
            )
        reporter.report(RunStarted(sweep_id, plan))
        order = SweepOrder(
            sweep,
            reporter,
            sweep_id,
            folder,
            asked.tables or str(out / "tables"),
            asked.slots,
            asked.locks,
            sweep.experiment.budget_s if budget_s is None else budget_s,
            _seconds_of,
        )
        sweeping = Sweeping(order)
        try:
            sweeping.run()
        except BaseException as error:
            _conclude(sweeping, sweeping.ending(error))
            raise
        ending = sweeping.ending(None)
        _conclude(sweeping, ending)
        return ending.outcome()


def plan_of_sweep(sweep: Sweep, out: Path) -> Plan:
    """What a sweep will do: the sum of what its cases will."""
    groups = list(turns(sweep))
    plans = [_plan_of(turn, out) for group in groups for turn in group]
    written = [each.write_bytes_max for each in plans]
    first, experiment = plans[0], sweep.experiment
    varied = "; ".join(
        f"{path}: {', '.join(dict.fromkeys(case.settings[path] for case in sweep.cases))}"
        for path in experiment.varied
    )
    starts = sum(1 for _ in groups)
    warm_s = sum(group[0].case.config.cluster.warm_up_max_s for group in groups)
    return Plan(
        cluster=first.cluster,
        workload=first.workload,
        goal=first.goal,
        brokers=first.brokers,
        message_bytes=first.message_bytes,
        producer=first.producer,
        resolution=first.resolution,
        trial_s=first.trial_s,
        trials_estimated=sum(each.trials_estimated for each in plans),
        duration_s=sum(each.duration_s for each in plans) + starts * OPENING_S + warm_s,
        write_bytes_max=sum(each or 0.0 for each in written) if all(written) else None,
        out=out,
        notes=(
            f"experiment {experiment.name}: {experiment.description}",
            f"{len(sweep.cases)} cases, {len(plans)} measurements; varied: {varied}",
            *first.notes,
        ),
    )


def _plan_of(turn: Turn, out: Path) -> Plan:
    return body_of(turn).plan(out)


def _seconds_of(turn: Turn) -> float:
    return _plan_of(turn, Path()).duration_s


def _clusters(sweep: Sweep) -> list[Cluster]:
    found: list[Cluster] = []
    for case in sweep.cases:
        if case.config.cluster not in found:
            found.append(case.config.cluster)
    return found


def _conclude(sweeping: Sweeping, ending: Ending) -> None:
    """Leave sweep.json and the charts, and tell what was found."""
    order, results = sweeping.order, sweeping.results
    sweep, reporter = order.sweep, order.reporter
    effects = effects_in(sweep, results)
    head = {
        "sweep_id": order.sweep_id,
        "started_at": iso_utc(sweeping.started_s),
        "finished_at": iso_utc(time.time()),
        "status": ending.status,
        "exit_code": ending.exit_code,
        "error": ending.error,
        "caveat": caveat_of(sweep.cases[0].config),
    }
    file = order.folder / "sweep.json"
    write_answer(sweep, results, effects, head, file)
    if results:
        reporter.report(results_table(sweep, results))
    for text in (*sentences(effects), *caveats(sweep.experiment, effects)):
        note(reporter, text)
    if any(each.value for each in results):
        axes = {path: (short(path), values) for path, values in axes_of(sweep).items()}
        chart = order.folder / "sweep.png"
        write_sweep_chart(sweep.experiment.name, unit_of(sweep), axes, results, chart)
        note(reporter, f"chart: {chart}")
    note(reporter, f"all of it is in {file}")
    note(reporter, f"tables: {order.tables}")
