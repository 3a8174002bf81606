"""A comparison from opening both sides to the last file."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.console.events import PhaseStarted, PlanShown, Reporter
from jobs.runs.compare.answer import Answer, SideFacts, answer_of, ending_with, write_answer
from jobs.runs.compare.pairs import Case, CaseComparer, Effort, producers
from jobs.runs.compare.side_reporter import SideReporter
from jobs.runs.compare.sides import SideSetup
from jobs.runs.compare.words import plan_for
from jobs.runs.limit import logged_to
from jobs.runs.opening import Opening, open_session
from jobs.runs.results import Ending, caveat_of, ending_of, run_row
from jobs.trials.context import Bench
from jobs.trials.fixed_load import Holder
from metrics.comparing.pairs import Side
from metrics.tables.schema import Trial
from metrics.units import iso_utc
from search.errors import NoConclusionError

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class CompareRun:
    """Compares two sides, and keeps what it found however it ends.

    Args:
        sides: as ordered.
        out: the comparison's own folder is made in here.
        tables: path or catalog name of the Delta tables.
        compare_id: names it; its runs in the tables are `ID-a` and `ID-b`.
        effort: trials for each message size.
        min_effect: the least change of the capacity that matters [share].
        budget_s: no trial is begun after so much time in trials [s]; None is no bound.
        slots: tasks that share the load; None for as many as Spark can run at once.
    """

    sides: Mapping[Side, SideSetup]
    reporter: Reporter
    out: Path
    tables: str
    compare_id: str
    effort: Effort
    min_effect: float
    budget_s: float | None = None
    slots: int | None = None
    _cases: list[Case] = field(default_factory=list)
    _benches: dict[Side, Bench] = field(default_factory=dict)
    _holders: dict[Side, Holder] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """Where compare.json is written."""
        return self.out / self.compare_id / "compare.json"

    def execute(self) -> Answer:
        """Run to the end, and leave compare.json and tables.

        Raises:
            NoConclusionError: a message size has too few pairs that are answers.
            RedlineError: as opening a cluster, the session or the tables raises.
            KeyboardInterrupt: it was interrupted.
        """
        started_s = time.time()
        plan = plan_for(self.sides, self.effort, self.budget_s, self.file.parent)
        self.reporter.report(PlanShown(plan))
        try:
            with ExitStack() as stack:
                stack.enter_context(logged_to(self.file.with_name("compare.log")))
                self._run(stack)
        except BaseException as error:
            self._conclude(started_s, ending_of(error, ()))
            raise
        return self._conclude(started_s, None)

    # --- measuring ----------------------------------------------------------

    def _run(self, stack: ExitStack) -> None:
        self.reporter.report(PhaseStarted("starting Spark"))
        log = self.file.with_name("spark.log")
        session = open_session(stack, self.slots, log)
        for side, setup in self.sides.items():
            self._benches[side] = Opening(
                setup.config,
                SideReporter(self.reporter, side),
                self._run_id(side),
                self.file.parent,
                self.tables,
                session=session,
            ).open(stack)
        self._benches[Side.B].numbers = self._benches[Side.A].numbers
        with self._told_in_tables():
            for side, setup in self.sides.items():
                holder = Holder(self._benches[side], setup.config.cluster.warm_up_max_s)
                self._holders[side] = stack.enter_context(holder)
            self._measure()

    def _run_id(self, side: Side) -> str:
        return f"{self.compare_id}-{side.value.lower()}"

    def _measure(self) -> None:
        config = self.sides[Side.A].config
        search, brokers = config.goal.search, self._benches[Side.A].brokers
        sizes, begun_s = config.workload.message_bytes, time.monotonic()
        budget_s = math.inf if self.budget_s is None else self.budget_s
        for done, bpm in enumerate(sizes, 1):
            case = Case(bpm)
            self._cases.append(case)
            comparer = CaseComparer(
                partial(self._hold, bpm),
                self.effort,
                search.load_start_max / brokers,
                search.load_cap / brokers,
                partial(_is_before, begun_s + budget_s * done / len(sizes)),
            )
            try:
                comparer.measure(case)
            except NoConclusionError as error:  # of this size; others may have an answer
                case.notes.append(str(error))

    def _hold(self, bpm: int, side: Side, load_per_broker: float, reason: str) -> Trial:
        load = producers(load_per_broker, self._benches[side].brokers)
        done = sum(len(bench.records) for bench in self._benches.values())
        left = len(self.sides[side].config.workload.message_bytes) * self.effort.trials - done
        return self._holders[side].hold(bpm, load, f"{side.value}: {reason}", max(1, left))

    @contextmanager
    def _told_in_tables(self) -> Iterator[None]:
        """Each side is a run in the tables, from its start to its end."""
        for side in Side:
            self._append_run(side, None)
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            for side in Side:
                self._append_run(side, ending_of(error, ()))

    def _append_run(self, side: Side, ending: Ending | None) -> None:
        bench, config = self._benches[side], self.sides[side].config
        row = run_row(
            bench.run_id,
            "started" if ending is None else "finished",
            time.time(),
            config,
            bench.brokers,
            bench.environment,
            ending,
        )
        bench.tables.append_run(replace(row, caveat=caveat_of(config, bench.caveats)))

    # --- concluding ---------------------------------------------------------

    def _conclude(self, started_s: float, ending: Ending | None) -> Answer:
        facts = {
            side: SideFacts(
                self.sides[side].label,
                bench.run_id,
                self.sides[side].config.cluster.name,
                bench.brokers,
                bench.environment,
            )
            for side, bench in self._benches.items()
        }
        if len(facts) < len(Side):  # ended before both sides were open: nothing was compared
            answer = Answer(facts, (), (), self.min_effect)
        else:
            answer = answer_of(facts, self._cases, self.min_effect)
        ending = ending or ending_with(answer)
        write_answer(answer, self._head(started_s, ending), self.file)
        return answer

    def _head(self, started_s: float, ending: Ending) -> dict[str, Any]:
        config = self.sides[Side.A].config
        return {
            "compare_id": self.compare_id,
            "started_at": iso_utc(started_s),
            "finished_at": iso_utc(time.time()),
            "workload": config.workload.name,
            "goal": config.goal_names,
            "status": ending.status,
            "exit_code": ending.exit_code,
            "error": ending.error,
            "caveat": caveat_of(config),
            "pairs": self.effort.pairs,
        }


def _is_before(end_s: float) -> bool:
    return time.monotonic() < end_s
