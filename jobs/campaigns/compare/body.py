"""A comparison: measures pairs of trials on two sides, and concludes from them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jobs.campaigns.compare.answer import (
    ComparisonAnswer,
    SideFacts,
    answer_of,
    caveats_of_sides,
    outcome_with,
    write_answer,
)
from jobs.campaigns.compare.pairs import CaseComparer, ComparedSize, Effort, count_producers
from jobs.campaigns.compare.presentation import answer_tables, plan_for, sentences
from jobs.campaigns.compare.side_reporter import SideReporter
from jobs.campaigns.compare.sides import SideSetup, share_brokers
from jobs.config import Configuration
from jobs.console.events import Plan, Reporter, Table, note, warn
from jobs.runs.artifacts import ArtifactWriter
from jobs.runs.lifecycle import Body, RunState
from jobs.runs.outcome import RunOutcome, outcome_of
from jobs.trials.holding import Holder
from metrics.common.errors import NoConclusionError
from metrics.comparing.pairs import Side
from metrics.reporting.answer_page import AnswerPage, answer_page
from metrics.reporting.files import write_atomic
from metrics.trial.trial import Trial


class ComparisonRun(Body):
    """Compares two sides, and keeps the results after an error or an interrupt.

    Each side has a run id of its own in the tables: `ID-a` and `ID-b`.

    Args:
        sides: the set-ups of both sides.
        effort: the numbers of trials for each message size.
        min_effect: the smallest change of the capacity that counts [ratio].
        budget_s: the time after which no trial begins [s]; None without a bound.
    """

    def __init__(
        self,
        sides: Mapping[Side, SideSetup],
        effort: Effort,
        min_effect: float,
        budget_s: float | None = None,
    ) -> None:
        self._sides = sides
        self._effort = effort
        self._min_effect = min_effect
        self._budget_s = budget_s
        self._cases: list[ComparedSize] = []
        self._answer = ComparisonAnswer({}, (), (), min_effect)

    @property
    def configurations(self) -> Mapping[str, Configuration]:
        """The configuration of each side by its name."""
        return {_name(side): setup.config for side, setup in self._sides.items()}

    @property
    def shares_brokers(self) -> bool:
        """Whether both sides load the same brokers, as they differ in workload or goal only."""
        return share_brokers(self._sides)

    def plan(self, out: Path) -> Plan:
        """The plan of the pairs for all sizes."""
        return plan_for(self._sides, self._effort, self._budget_s, out)

    def reporter_of(self, name: str, reporter: Reporter) -> Reporter:
        """A reporter that marks events with the side."""
        return SideReporter(reporter, Side(name.upper()))

    # --- measuring ----------------------------------------------------------

    def measure(self, run: RunState) -> None:
        """Measure size after size; a size without an answer does not stop the others."""
        self._measure_all(run)
        self._answer = answer_of(self._facts(run), self._cases, self._min_effect)

    def fail(self, run: RunState, error: BaseException) -> None:
        """Conclude from the trials before the error."""
        self._answer = answer_of(self._facts(run), self._cases, self._min_effect)

    def _measure_all(self, run: RunState) -> None:
        config = self._sides[Side.A].config
        search, sizes = config.goal.search, config.workload.message_bytes
        brokers = run.contexts[_name(Side.A)].brokers
        budget_s, begun_s = self._budget_s or math.inf, time.monotonic()
        holders = {
            side: Holder(run.contexts[_name(side)], setup.config.cluster.warm_up_max_s)
            for side, setup in self._sides.items()
        }
        with holders[Side.A], holders[Side.B]:
            for done, message_bytes in enumerate(sizes, 1):
                case = ComparedSize(message_bytes)
                self._cases.append(case)
                comparer = CaseComparer(
                    partial(self._hold, run, holders, message_bytes),
                    self._effort,
                    search.load_start_max / brokers,
                    search.load_cap / brokers,
                    partial(_is_before, begun_s + budget_s * done / len(sizes)),
                )
                try:
                    comparer.measure(case)
                except NoConclusionError as error:  # other sizes may still have an answer
                    case.notes.append(str(error))

    def _hold(
        self,
        run: RunState,
        holders: Mapping[Side, Holder],
        message_bytes: int,
        side: Side,
        load_per_broker: float,
        reason: str,
    ) -> Trial:
        load = count_producers(load_per_broker, run.contexts[_name(side)].brokers)
        done = sum(len(context.history.trials) for context in run.contexts.values())
        left = len(self._sides[side].config.workload.message_bytes) * self._effort.trials - done
        return holders[side].hold(message_bytes, load, f"{side.value}: {reason}", max(1, left))

    def _facts(self, run: RunState) -> dict[Side, SideFacts]:
        return {
            side: SideFacts(
                setup.label,
                context.run_id,
                setup.config.cluster.name,
                context.brokers,
                context.environment,
                setup.settings,
                context.all_caveats,
            )
            for side, setup in self._sides.items()
            if (context := run.contexts.get(_name(side))) is not None
        }

    # --- concluding ---------------------------------------------------------

    def outcome(self, error: BaseException | None) -> RunOutcome:
        """The outcome by the error, or by the answer."""
        return outcome_with(self._answer) if error is None else outcome_of(error)

    def conclude(self, run: RunState, outcome: RunOutcome) -> None:
        """Write compare.json and the page, and report the results."""
        file = run.order.folder / "compare.json"
        head, files = self._head(run, outcome), ArtifactWriter()
        write = partial(write_answer, self._answer, head)
        files.write_answer_file("answer", file, run.order.json_file, write)
        reporter = run.order.reporter
        tables, texts = answer_tables(self._answer), tuple(sentences(self._answer))
        page = run.order.folder / "compare.html"
        text_of_page = answer_page(self._page(run, outcome, tables, texts))
        files.write("report", page, partial(write_atomic, page, text_of_page))
        for table in tables:
            reporter.report(table)
        for text in texts:
            note(reporter, text)
        for text in caveats_of_sides({s: f.caveats for s, f in self._answer.sides.items()}):
            warn(reporter, f"caveat: {text}")
        for what, where in files.written:
            note(reporter, f"{what}: {where}")
        files.require_all("fix the disk, then read the trials from the tables")

    @property
    def _caveat(self) -> str:
        """The caveats of both sides' figures."""
        of_cluster = {side: setup.config.cluster.caveats for side, setup in self._sides.items()}
        found = {
            side: (*own, *(facts.caveats if (facts := self._answer.sides.get(side)) else ()))
            for side, own in of_cluster.items()
        }
        return "; ".join(caveats_of_sides(found))

    def _page(
        self, run: RunState, outcome: RunOutcome, tables: Sequence[Table], texts: tuple[str, ...]
    ) -> AnswerPage:
        config = self._sides[Side.A].config
        labels = " against ".join(setup.label for setup in self._sides.values())
        return AnswerPage(
            title=f"{labels}, with {config.workload.name}",
            about=f"comparison {run.order.run_id}, goal {config.goal_names}",
            started_at=run.times[0],
            status=outcome.status,
            error=outcome.error,
            caveat=self._caveat,
            sentences=texts or tuple(text for case in self._cases for text in case.notes),
            tables=tuple((each.title, each.columns, each.rows) for each in tables),
            facts=(),
            file="compare.json",
        )

    def _head(self, run: RunState, outcome: RunOutcome) -> dict[str, Any]:
        config, (started_at, finished_at) = self._sides[Side.A].config, run.times
        return {
            "compare_id": run.order.run_id,
            "started_at": started_at,
            "finished_at": finished_at,
            "workload": config.workload.name,
            "goal": config.goal_names,
            "status": outcome.status,
            "exit_code": outcome.exit_code,
            "error": outcome.error,
            "caveat": self._caveat,
            "pairs": self._effort.pairs,
        }


def _name(side: Side) -> str:
    """The name of a side in its run id."""
    return side.value.lower()


def _is_before(end_s: float) -> bool:
    return time.monotonic() < end_s
