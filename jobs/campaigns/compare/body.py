"""A comparison: measures pairs of trials on two sides, and concludes from them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from jobs.campaigns.campaign import Campaign, CampaignAnswer
from jobs.campaigns.compare.answer import (
    ComparisonAnswer,
    SideFacts,
    answer_of,
    caveats_of_sides,
    outcome_with,
    write_answer,
)
from jobs.campaigns.compare.pairs import CaseComparer, ComparedSize, Effort, load_of_cluster
from jobs.campaigns.compare.presentation import answer_tables, plan_notes, sentences
from jobs.campaigns.compare.side_reporter import SideReporter
from jobs.campaigns.compare.sides import SideSetup, share_brokers
from jobs.campaigns.schedule import Turn, once
from jobs.config import Configuration
from jobs.console.events import Level, Notice, Plan, Reporter, Table
from jobs.runs.budget import TimeBudget
from jobs.runs.estimate import LOOKS_S, SPARK_S, brokers_s, plan_of, trial_s
from jobs.runs.lifecycle import RunState
from jobs.runs.outcome import RunOutcome, outcome_of
from jobs.trials.holding import Holder
from metrics.common.errors import NoConclusionError
from metrics.comparing.pairs import Side
from metrics.reporting.answer_page import AnswerPage, answer_page
from metrics.trial.trial import Trial


class ComparisonRun(Campaign[int]):
    """Compares two sides at each message size; an error or an interrupt keeps the results.

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
        super().__init__(budget_s)
        self._sides = sides
        self._effort = effort
        self._min_effect = min_effect
        self._cases: list[ComparedSize] = []
        self._holders: dict[Side, Holder] = {}
        self._began_s = 0.0
        self._answer = ComparisonAnswer({}, (), (), min_effect)

    @property
    def configurations(self) -> Mapping[str, Configuration]:
        """The configuration of each side by its name."""
        return {_name(side): setup.config for side, setup in self._sides.items()}

    @property
    def shares_brokers(self) -> bool:
        """Whether both sides load the same brokers, as they differ in workload or goal only."""
        return share_brokers(self._sides)

    def reporter_of(self, name: str, reporter: Reporter) -> Reporter:
        """A reporter that marks events with the side."""
        return SideReporter(reporter, Side(name.upper()))

    @property
    def _config(self) -> Configuration:
        """The configuration of A, whose sizes and search are those of B, too."""
        return self._sides[Side.A].config

    def schedule(self) -> Iterator[list[Turn[int]]]:
        """Each message size once; its trials take turns A B B A."""
        yield once(self._config.workload.message_bytes)

    def title(self, turn: Turn[int]) -> str:
        """The message size, or the mix."""
        case = ComparedSize(turn.case, is_mix=self._config.workload.mix is not None)
        return case.title if case.is_mix else f"messages of {case.title}"

    # --- the plan -----------------------------------------------------------

    def forecast(self, case: int) -> Plan:
        """The pairs at one size; estimated as a search with the same number of trials."""
        config = self._config.with_workload(message_bytes=(case,))
        plan, one_s, trials = plan_of(config, Path()), trial_s(config.workload), self._effort.trials
        written = plan.write_bytes_max
        return replace(
            plan,
            resolution=None,
            trials_estimated=trials,
            duration_s=trials * one_s,
            write_bytes_max=None if written is None else written * trials / plan.trials_estimated,
            disk_bytes_max=None,
        )

    def needed_s(self, turn: Turn[int]) -> float:
        """Nothing, as a budget ends the pairs of a size and not the size."""
        return 0.0

    def starting_s(self, groups: Sequence[Sequence[Turn[int]]]) -> float:
        """The brokers of both sides start one after the other."""
        clusters = (setup.config.cluster for setup in self._sides.values())
        return SPARK_S + sum(brokers_s(each) + LOOKS_S for each in clusters)

    def about(self, groups: Sequence[Sequence[Turn[int]]]) -> tuple[str, ...]:
        """The sides, the pairs and the memory."""
        return plan_notes(self._sides, self._effort, self.budget_s)

    def plan(self, out: Path) -> Plan:
        """The plan of the pairs for all sizes, within the budget."""
        plan, most_s = super().plan(out), self.budget_s or math.inf
        labels = " against ".join(setup.label for setup in self._sides.values())
        return replace(plan, cluster=labels, duration_s=min(plan.duration_s, most_s))

    # --- measuring ----------------------------------------------------------

    def measure(self, run: RunState) -> None:
        """Measure size after size; a size without an answer does not stop the others."""
        super().measure(run)
        self._answer = answer_of(self._facts(run), self._cases, self._min_effect)

    def fail(self, run: RunState, error: BaseException) -> None:
        """Conclude from the trials before the error."""
        self._answer = answer_of(self._facts(run), self._cases, self._min_effect)

    @contextmanager
    def opened(self, run: RunState, group: Sequence[Turn[int]]) -> Iterator[None]:
        """Open the gates of both sides."""
        self._began_s = time.time()
        self._holders = {
            side: Holder(run.contexts[_name(side)], setup.config.cluster.warm_up_max_s)
            for side, setup in self._sides.items()
        }
        with self._holders[Side.A], self._holders[Side.B]:
            yield

    def measure_turn(self, run: RunState, turn: Turn[int], budget: TimeBudget) -> None:
        """Measure the pairs of one size, within its share of the budget."""
        search, brokers = self._config.goal.search, run.contexts[_name(Side.A)].brokers
        load_cap, cap_key = self._highest_load(run, turn.case)
        done = turn.number / len(self._config.workload.message_bytes)
        own = replace(budget, began_s=self._began_s).share(done)
        case = ComparedSize(turn.case, is_mix=self._config.workload.mix is not None)
        self._cases.append(case)
        comparer = CaseComparer(
            partial(self._hold, run, turn.case),
            replace(self._effort, repeats_max=search.invalid_repeats_max),
            min(search.load_start_max / brokers, load_cap),
            load_cap,
            lambda: own.left_s != 0.0,
            self._config.axis.words,
            cap_key,
        )
        try:
            comparer.measure(case)
        except NoConclusionError as error:
            case.notes.append(str(error))
            raise

    def _highest_load(self, run: RunState, message_bytes: int) -> tuple[float, str]:
        """The highest load per broker that the guards of both sides allow, and the key in words."""
        found = []
        for context in run.contexts.values():
            guards, most = context.guards, self._config.goal.search.load_cap
            load, key = guards.limits.highest_load(partial(context.pattern, message_bytes), most)
            words = guards.key_words(key) if key else "goal.search.load_cap"
            found.append((load / context.brokers, words))
        return min(found)

    def _hold(
        self,
        run: RunState,
        message_bytes: int,
        side: Side,
        load_per_broker: float,
        reason: str,
    ) -> Trial:
        load = load_of_cluster(load_per_broker, run.contexts[_name(side)].brokers)
        done = sum(len(context.history.trials) for context in run.contexts.values())
        left = len(self._sides[side].config.workload.message_bytes) * self._effort.trials - done
        return self._holders[side].hold(
            message_bytes, load, f"{side.value}: {reason}", max(1, left)
        )

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

    def answer(self, run: RunState, outcome: RunOutcome) -> CampaignAnswer:
        """The effects, and their likely causes."""
        tables, texts = answer_tables(self._answer), tuple(sentences(self._answer))
        caveats = caveats_of_sides({s: f.caveats for s, f in self._answer.sides.items()})
        page = self._page(run, outcome, tables, texts)
        return CampaignAnswer(
            "compare",
            partial(write_answer, self._answer, self._head(run, outcome)),
            partial(answer_page, page),
            tables,
            (
                *(Notice(Level.NOTE, text) for text in texts),
                *(Notice(Level.WARNING, f"caveat: {text}") for text in caveats),
            ),
            "fix the disk, then read the trials from the tables",
        )

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
        config = self._config
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
        config, (started_at, finished_at) = self._config, run.times
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
