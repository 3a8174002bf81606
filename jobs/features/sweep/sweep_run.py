"""A sweep: each case of an experiment is a run. Cases with equal clusters share their brokers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from jobs.campaigns.campaign import Campaign, CampaignAnswer, Turn, shuffled
from jobs.cluster.opening import OpenCluster, open_cluster
from jobs.cluster.topic_plan import begun_s
from jobs.config import Configuration
from jobs.console.events import Level, Notice, PhaseStarted, Plan, Table
from jobs.features.sweep.cases import ExperimentCase, Sweep, case_of, finished, results_of
from jobs.runs.context_factory import RunOrder, open_session
from jobs.runs.estimate import LOOKS_S, SPARK_S, TimeBudget, brokers_s, caveat_of
from jobs.runs.lifecycle import Body, RunState, execute
from jobs.runs.measurement import explaining
from jobs.runs.outcome import RunOutcome, outcome_of
from jobs.trials.context import Session
from metrics.common.errors import ConfigError, NoConclusionError
from metrics.comparing.figures import CASE, Result, values_of
from metrics.features.sweep.answer import SweepAnswer
from metrics.reporting.files import write_atomic
from metrics.tables.rows import SweepCase
from metrics.units import iso_utc

PLAN = "experiment.json"
"""Name of a file in a sweep's folder. The file contains the experiment and the experiment's cases.
The option --resume checks this file.
"""


class SweepRun(Campaign[ExperimentCase]):
    """Measures the cases of an experiment.

    Args:
        budget_s: the time budget of the sweep [s]; None for the budget of the experiment.

    Attributes:
        results: the results of all measured cases, including cases without an answer.
        nearby: the limit of the previous case. The next search begins near the limit of the
            previous case.
    """

    def __init__(self, sweep: Sweep, budget_s: float | None = None) -> None:
        super().__init__(sweep.experiment.budget_s if budget_s is None else budget_s)
        self.sweep = sweep
        self.results: list[Result] = []
        self.nearby: int | None = None
        self._stack = ExitStack()
        self._session: Session | None = None
        self._cluster: OpenCluster | None = None

    @property
    def configurations(self) -> Mapping[str, Configuration]:
        """The configurations that the sweep itself records: none, because each case is a run with
        its own configuration.
        """
        return {}

    @property
    def loaded(self) -> Sequence[Configuration]:
        """The configurations of all cases."""
        return [case.config for case in self.sweep.cases]

    def schedule(self) -> Iterator[list[Turn[ExperimentCase]]]:
        """The schedule. Each repeat measures all cases, in a random order that the experiment's
        seed determines.
        """
        experiment = self.sweep.experiment
        return shuffled(
            self.sweep.cases, experiment.repeats, experiment.seed, lambda each: each.config.cluster
        )

    def title(self, turn: Turn[ExperimentCase]) -> str:
        """The name of the case, and the number of the repeat."""
        return f"case {turn.case.name}, repeat {turn.repeat}"

    # --- the plan -----------------------------------------------------------

    def body_of(self, case: ExperimentCase) -> Body:
        """The run of a case. The search of a limit begins near the limit of the previous case."""
        measurement = self.sweep.measurement
        with explaining(measurement):
            asked = case_of(self.sweep.experiment, case.config)
            return measurement.body(replace(asked, nearby=self.nearby))

    def forecast(self, case: ExperimentCase) -> Plan:
        """The plan of one case."""
        return self.body_of(case).plan(Path())

    def starting_s(self, groups: Sequence[Sequence[Turn[ExperimentCase]]]) -> float:
        """The time outside the measurements [s]: the brokers of each group start once, and each
        case checks the cluster once.
        """
        started_s = sum(brokers_s(group[0].case.config.cluster) for group in groups)
        return SPARK_S + started_s + sum(map(len, groups)) * LOOKS_S

    def about(self, groups: Sequence[Sequence[Turn[ExperimentCase]]]) -> tuple[str, ...]:
        """Plan notes: the experiment, and the varied keys with their values."""
        experiment, cases = self.sweep.experiment, self.sweep.cases
        values = values_of([each.settings for each in cases])
        varied = "; ".join(f"{path}: {', '.join(each)}" for path, each in values.items())
        return (
            f"experiment {experiment.name}: {experiment.description}",
            f"{len(cases)} cases, {sum(map(len, groups))} measurements; varied: {varied}",
        )

    # --- measuring ----------------------------------------------------------

    def resume(self, run: RunState) -> None:
        """Write the experiment to the sweep's folder, or compare the experiment with the existing
        file.

        Raises:
            ConfigError: the resumed sweep began with another experiment.
        """
        sweep, path = self.sweep, run.order.folder / PLAN
        plan = {
            "experiment": sweep.experiment.model_dump(mode="json", exclude={"claims"}),
            "cases": {f"{n}": case.name for n, case in enumerate(sweep.cases, 1)},
        }
        text = json.dumps(plan, indent=2, sort_keys=True, default=str) + "\n"
        if not path.exists():
            write_atomic(path, text)
        elif path.read_text(encoding="utf-8") != text:
            raise ConfigError(
                f"the sweep {run.order.run_id} began with another experiment ({path}); expected "
                "the same experiment, because cases of two experiments cannot be compared; give "
                "the same file and options, or start a new sweep"
            )

    def measure(self, run: RunState) -> None:
        """Measure all cases in one Spark session."""
        with self._stack:
            super().measure(run)

    @contextmanager
    def opened(self, run: RunState, group: Sequence[Turn[ExperimentCase]]) -> Iterator[None]:
        """Open the brokers that a group of cases loads. The first group also starts Spark."""
        cluster, open_spark = group[0].case.config.cluster, partial(self._open_spark, run.order)
        with ExitStack() as brokers:
            self._cluster = open_cluster(cluster, run.order.reporter, brokers, open_spark)
            open_spark()
            yield

    def _open_spark(self, order: RunOrder) -> None:
        """Open the Spark session and the tables for all cases, unless they are open."""
        if self._session is not None:
            return
        order.reporter.report(PhaseStarted("starting Spark"))
        least = max(case.config.workload.slots_least for case in self.sweep.cases)
        log = order.folder / "spark.log"
        self._session = open_session(self._stack, order.slots, log, least)
        self._stack.callback(self._session.tables(order.tables_or_default).close)

    def _folders(self, run: RunState, turn: Turn[ExperimentCase]) -> list[Path]:
        """The run folders of a case in one repeat, in the order of the attempts."""
        return sorted(run.order.folder.glob(f"{run.order.run_id}-{turn.name}*"))

    def take_over(self, run: RunState, turn: Turn[ExperimentCase]) -> bool:
        """Add the results of a case in one repeat, if a run of this case and repeat has finished.
        Return False if no such run has finished.
        """
        found = (finished(folder) for folder in self._folders(run, turn))
        summary = next((each for each in found if each is not None), None)
        if summary is None:
            return False
        measurement = self.sweep.measurement
        self.results.extend(results_of(measurement, turn.case.shown, turn.repeat, summary))
        limits = [load for each in summary.boundaries if (load := each.loads[0])]
        self.nearby = limits[0] if limits else self.nearby
        return True

    def measure_turn(self, run: RunState, turn: Turn[ExperimentCase], budget: TimeBudget) -> None:
        """Execute the run of a case, and add its results, even if there is no answer."""
        order, case, tries = run.order, turn.case, len(self._folders(run, turn))
        name = f"{order.run_id}-{turn.name}{f'-{tries + 1}' if tries else ''}"
        own = replace(
            order,
            run_id=name,
            out=order.folder,
            tables=order.tables_or_default,
            json_file=None,
            resumes=False,
            sweep_case=SweepCase(
                order.run_id, self.sweep.experiment.name, case.name, turn.repeat, case.shown
            ),
        )
        unanswered: NoConclusionError | None = None
        try:
            execute(self.body_of(case), own, self._cluster, self._session)
        except NoConclusionError as error:
            unanswered = error
        is_finished = self.take_over(run, turn)
        assert is_finished, "every run writes a summary at its end"
        if unanswered is not None:
            raise unanswered

    # --- concluding ---------------------------------------------------------

    def outcome(self, error: BaseException | None) -> RunOutcome:
        """The outcome of the sweep. After an error, the outcome depends on the error. Without an
        error, the outcome depends on the number of cases without an answer.
        """
        if error is not None:
            return outcome_of(error)
        silent = sorted({each.why for each in self.results if each.value is None})
        lacking = sum(each.value is None for each in self.results)
        left = sum(not each.is_begun for each in self.missing)
        if left or lacking or not self.results:
            parts = [f"{lacking} of {len(self.results)} figures are missing"] if lacking else []
            parts += [f"{left} cases did not fit into the budget"] * bool(left)
            reasons = f": {'; '.join(silent[:3])}" if silent else ""
            text = f"{' and '.join(parts) or 'nothing was measured'}{reasons}"
            return RunOutcome("no conclusion", NoConclusionError.exit_code, text)
        return RunOutcome()

    def answer(self, run: RunState, outcome: RunOutcome) -> CampaignAnswer:
        """The files, the table, the sentences and the chart of the sweep."""
        # Imported here, because the import of Altair is slow and a failed sweep needs no charts.
        from metrics.features.sweep.charts import sweep_page, write_sweep_chart
        from metrics.reporting.drawing import can_draw

        answer = answer_of(run, outcome, self.sweep, self.results)
        document = answer.document()
        table = Table(answer.experiment, answer.columns, answer.rows)
        texts = (*answer.meanings, *answer.sentences, *answer.advices, *answer.caveats)
        chart = ("chart", run.order.folder / "sweep.png", partial(write_sweep_chart, answer))
        return CampaignAnswer(
            "sweep",
            lambda path: write_atomic(path, document),
            partial(sweep_page, answer),
            (table,) if answer.results else (),
            [Notice(Level.NOTE, text) for text in texts],
            "fix the disk, then repeat the command with --resume, which writes the files and "
            "measures no case twice",
            (chart,) if can_draw() and any(each.value for each in answer.results) else (),
        )


def require_begun(folder: Path) -> None:
    """Require that the folder of the resumed sweep exists.

    Raises:
        ConfigError: the folder does not exist.
    """
    if not folder.exists():
        raise ConfigError(
            f"--resume names the sweep {folder.name}, and {folder} does not exist; expected a "
            "sweep in the folder of --out; correct the id, or name the sweep's folder with --out"
        )


def axes_of(sweep: Sweep) -> dict[str, tuple[str, ...]]:
    """Axis → its values in order. An axis is the path of a varied key, or `CASE` if cases have
    names.
    """
    return values_of([case.shown for case in sweep.cases])


def answer_of(
    run: RunState, outcome: RunOutcome, sweep: Sweep, results: Sequence[Result]
) -> SweepAnswer:
    """The answer of a sweep that ended with the given outcome."""
    sweep_id, experiment = run.order.run_id, sweep.experiment
    return SweepAnswer(
        sweep_id,
        # The id contains the start time, also for a resumed sweep.
        iso_utc(begun_s(sweep_id) or run.started_s),
        iso_utc(time.time()),
        outcome.status,
        outcome.exit_code,
        outcome.error,
        caveat_of(sweep.cases[0].config),
        experiment.name,
        experiment.description,
        experiment.published,
        sweep.measurement.name,
        sweep.measurement.unit_on(sweep.cases[0].config.goal.search.axis),
        sweep.measurement.figure,
        axes_of(sweep),
        experiment.repeats,
        tuple(in_order(sweep, results)),
        {case.name: case.settings for case in sweep.cases if CASE in case.shown},
        experiment.claims,
    )


def in_order(sweep: Sweep, results: Sequence[Result]) -> list[Result]:
    """The results in the order of cases, message sizes and repeats."""
    place = {tuple(sorted(case.shown.items())): i for i, case in enumerate(sweep.cases)}
    return sorted(
        results, key=lambda r: (place[tuple(sorted(r.settings.items()))], r.message_bytes, r.repeat)
    )
