"""A comparison: pairs of trials on two sides, and what they say."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jobs.config import Configuration
from jobs.console.events import Plan, Reporter, Table, note
from jobs.runs.compare.answer import (
    ComparisonAnswer,
    SideFacts,
    answer_of,
    ending_with,
    write_answer,
)
from jobs.runs.compare.pairs import CaseComparer, ComparedSize, Effort, producers
from jobs.runs.compare.side_reporter import SideReporter
from jobs.runs.compare.sides import SideSetup, share_brokers
from jobs.runs.compare.words import answer_tables, plan_for, sentences
from jobs.runs.endings import Ending, ending_of
from jobs.runs.estimate import caveat_of
from jobs.runs.leaving import LeftFiles
from jobs.runs.lifecycle import Body, Life
from jobs.trials.holding import Holder
from metrics.common.errors import NoConclusionError
from metrics.comparing.pairs import Side
from metrics.reporting.answer_page import AnswerPage, answer_page
from metrics.reporting.files import write_atomic
from metrics.trial.trial import Trial


class ComparisonRun(Body):
    """Compares two sides, and keeps what it found however it ends.

    Each side is a run of its own in the tables: `ID-a` and `ID-b`.

    Args:
        sides: as ordered.
        effort: trials for each message size.
        min_effect: the least change of the capacity that matters [share].
        budget_s: no trial is begun after so much time in trials [s]; None is no bound.
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
        """One for each side."""
        return {_name(side): setup.config for side, setup in self._sides.items()}

    @property
    def shares_brokers(self) -> bool:
        """Where the sides differ in what is offered or how it is judged alone."""
        return share_brokers(self._sides)

    def plan(self, out: Path) -> Plan:
        """Pairs for each size."""
        return plan_for(self._sides, self._effort, self._budget_s, out)

    def reporter_of(self, name: str, reporter: Reporter) -> Reporter:
        """One that says which side it is."""
        return SideReporter(reporter, Side(name.upper()))

    # --- measuring ----------------------------------------------------------

    def measure(self, life: Life) -> None:
        """Measure size after size; one without an answer ends none of the others."""
        self._measure_all(life)
        self._answer = answer_of(self._facts(life), self._cases, self._min_effect)

    def fail(self, life: Life, error: BaseException) -> None:
        """Say what the trials until then say."""
        self._answer = answer_of(self._facts(life), self._cases, self._min_effect)

    def _measure_all(self, life: Life) -> None:
        config = self._sides[Side.A].config
        search, sizes = config.goal.search, config.workload.message_bytes
        brokers = life.contexts[_name(Side.A)].brokers
        budget_s, begun_s = self._budget_s or math.inf, time.monotonic()
        holders = {
            side: Holder(life.contexts[_name(side)], setup.config.cluster.warm_up_max_s)
            for side, setup in self._sides.items()
        }
        with holders[Side.A], holders[Side.B]:
            for done, bpm in enumerate(sizes, 1):
                case = ComparedSize(bpm)
                self._cases.append(case)
                comparer = CaseComparer(
                    partial(self._hold, life, holders, bpm),
                    self._effort,
                    search.load_start_max / brokers,
                    search.load_cap / brokers,
                    partial(_is_before, begun_s + budget_s * done / len(sizes)),
                )
                try:
                    comparer.measure(case)
                except NoConclusionError as error:  # of this size; others may have an answer
                    case.notes.append(str(error))

    def _hold(
        self,
        life: Life,
        holders: Mapping[Side, Holder],
        bpm: int,
        side: Side,
        load_per_broker: float,
        reason: str,
    ) -> Trial:
        load = producers(load_per_broker, life.contexts[_name(side)].brokers)
        done = sum(len(context.trials) for context in life.contexts.values())
        left = len(self._sides[side].config.workload.message_bytes) * self._effort.trials - done
        return holders[side].hold(bpm, load, f"{side.value}: {reason}", max(1, left))

    def _facts(self, life: Life) -> dict[Side, SideFacts]:
        return {
            side: SideFacts(
                setup.label,
                context.run_id,
                setup.config.cluster.name,
                context.brokers,
                context.environment,
                setup.settings,
            )
            for side, setup in self._sides.items()
            if (context := life.contexts.get(_name(side))) is not None
        }

    # --- concluding ---------------------------------------------------------

    def ending(self, error: BaseException | None) -> Ending:
        """By the error, or by the answer."""
        return ending_with(self._answer) if error is None else ending_of(error)

    def conclude(self, life: Life, ending: Ending) -> None:
        """Leave compare.json, and tell what was found."""
        file = life.order.folder / "compare.json"
        head, files = self._head(life, ending), LeftFiles()
        write = partial(write_answer, self._answer, head)
        files.leave_answer("answer", file, life.order.json_file, write)
        reporter = life.order.reporter
        tables, told = answer_tables(self._answer), tuple(sentences(self._answer))
        page = life.order.folder / "compare.html"
        text_of_page = answer_page(self._page(life, ending, tables, told))
        files.leave("report", page, partial(write_atomic, page, text_of_page))
        for table in tables:
            reporter.report(table)
        for text in told:
            note(reporter, text)
        for what, where in files.written:
            note(reporter, f"{what}: {where}")
        files.require_all("see to the disk before the next one")

    def _page(
        self, life: Life, ending: Ending, tables: Sequence[Table], told: tuple[str, ...]
    ) -> AnswerPage:
        config = self._sides[Side.A].config
        labels = " against ".join(setup.label for setup in self._sides.values())
        return AnswerPage(
            title=f"{labels}, with {config.workload.name}",
            about=f"comparison {life.order.run_id}, goal {config.goal_names}",
            started_at=life.times[0],
            status=ending.status,
            error=ending.error,
            caveat=caveat_of(config),
            sentences=told or tuple(text for case in self._cases for text in case.notes),
            tables=tuple((each.title, each.columns, each.rows) for each in tables),
            facts=(),
            file="compare.json",
        )

    def _head(self, life: Life, ending: Ending) -> dict[str, Any]:
        config, (started_at, finished_at) = self._sides[Side.A].config, life.times
        return {
            "compare_id": life.order.run_id,
            "started_at": started_at,
            "finished_at": finished_at,
            "workload": config.workload.name,
            "goal": config.goal_names,
            "status": ending.status,
            "exit_code": ending.exit_code,
            "error": ending.error,
            "caveat": caveat_of(config),
            "pairs": self._effort.pairs,
        }


def _name(side: Side) -> str:
    """Of a side, as its run in the tables has it."""
    return side.value.lower()


def _is_before(end_s: float) -> bool:
    return time.monotonic() < end_s
