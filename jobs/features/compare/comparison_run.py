"""A comparison: measures pairs of trials on two sides, and presents the conclusion."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from jobs.campaigns.campaign import Campaign, CampaignAnswer, Turn, once
from jobs.config import Configuration
from jobs.console.events import (
    Event,
    Level,
    Notice,
    PhaseStarted,
    Plan,
    Reporter,
    Table,
    TrialFinished,
)
from jobs.features.compare.answer import (
    CaseAnswer,
    CaseComparer,
    ComparedSize,
    ComparisonAnswer,
    Effort,
    SideFacts,
    answer_of,
    caveats_of_sides,
    load_of_cluster,
    outcome_with,
    write_answer,
)
from jobs.features.compare.sides import SideSetup, needed_bytes, share_brokers
from jobs.runs.estimate import LOOKS_S, SPARK_S, TimeBudget, brokers_s, plan_of, trial_s
from jobs.runs.lifecycle import RunState
from jobs.runs.outcome import RunOutcome, outcome_of
from jobs.trials.measure import Rig
from metrics.common.errors import NoConclusionError
from metrics.comparing.cause import resource_use, short_name
from metrics.comparing.effects import PAIRS_MIN, Compared, Conclusion, Side
from metrics.reporting.templating import render
from metrics.tables.rows import Difference
from metrics.trial.trial import Trial
from metrics.units import UNKNOWN, format_duration, format_volume
from metrics.windows.use import Resource

_SHOWN = (
    Resource.REQUEST_HANDLERS,
    Resource.NETWORK_THREADS,
    Resource.CPU,
    Resource.DISK,
    Resource.NETWORK,
    Resource.REPLICATION,
)


def answer_tables(answer: ComparisonAnswer) -> list[Table]:
    """The tables of an answer: effects, use of resources, and differences between the sides."""
    if not answer.cases:
        return []
    differences = [differences_table(answer.differences)] if answer.differences else []
    return [effects_table(answer), bound_table(answer), *differences]


def sentences(answer: ComparisonAnswer) -> Iterator[str]:
    """The sentences on each message size: notes, conclusion, and likely cause with evidence.

    If the sides have different releases, the last sentence states both releases.
    """
    for case in answer.cases:
        yield from case.case.notes
        yield sentence(case, answer.min_effect)
        if case.cause is not None:
            yield case.cause.text
            for evidence in case.cause.evidence:
                yield f"evidence: {evidence}"
    if answer.cases:
        yield from _releases(answer.sides)


def _releases(sides: Mapping[Side, SideFacts]) -> Iterator[str]:
    """A sentence on the releases of both sides; no sentence if the releases are equal, or if both
    are unknown.
    """
    known = {side: facts.release or "of unknown release" for side, facts in sides.items()}
    if len(set(known.values())) > 1:
        yield "; ".join(f"{side.value} is {release}" for side, release in known.items())
    elif any(facts.release for facts in sides.values()):
        yield f"both sides are {known[Side.A]}"


def effects_table(answer: ComparisonAnswer) -> Table:
    """The table of effects, one row for each message size and each measure."""
    rows = [
        _effect_row(case, each) for case in answer.cases for each in (case.capacity, *case.steady)
    ]
    names = ", ".join(f"{side.value}: {facts.label}" for side, facts in answer.sides.items())
    head = ("size", "measure", "A", "B", "B to A", "95 % interval", "visible from", "pairs")
    return Table(f"{names}", head, tuple(rows))


def _effect_row(case: CaseAnswer, each: Compared) -> tuple[str, ...]:
    effect, unit = each.effect, each.quantity.unit
    means = (_value(each.mean(side)) for side in Side)
    interval = visible = UNKNOWN
    if effect is not None:
        interval = f"{_percent(effect.low - 1)} to {_percent(effect.high - 1)}"
        visible = f"{effect.smallest_visible:.1%}"
    return (
        case.case.title,
        f"{each.quantity.title}{f' [{unit}]' if unit else ''}",
        *means,
        UNKNOWN if effect is None else _percent(effect.change),
        interval,
        visible,
        str(len(each.pairs)),
    )


def _value(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def _percent(share: float) -> str:
    return f"{share:+.1%}"


def bound_table(answer: ComparisonAnswer) -> Table:
    """The table of resource use in the saturated and in the steady trials, with the limiting
    resource of each side.
    """
    rows = []
    for case in answer.cases:
        for when in ("saturated", "same load"):
            for side, evidence in case.evidence.items():
                trials = evidence.saturated if when == "saturated" else evidence.steady
                used = resource_use(trials)
                bound = evidence.limiting_resource.value if when == "saturated" else ""
                cells = [_value(used.get(resource)) for resource in _SHOWN]
                rows.append((case.case.title, when, side.value, bound, *cells))
    shown = tuple(resource.value for resource in _SHOWN)
    return Table("Use of the brokers' resources", ("size", "when", "side", "bound by", *shown),
                 tuple(rows))  # fmt: skip


def differences_table(differences: Sequence[Difference]) -> Table:
    """The table of differences between the sides."""
    rows = tuple((short_name(each.name), each.before, each.after) for each in differences)
    return Table("Differences between the sides", ("name", "A", "B"), rows)


def sentence(case: CaseAnswer, min_effect: float) -> str:
    """The conclusion at one message size as a sentence, with the interval and the smallest
    detectable loss.
    """
    size, effect = case.case.title, case.capacity.effect
    if effect is None:
        count = len(case.capacity.pairs)
        return f"{size}: no answer; {count} pairs are valid, and at least {PAIRS_MIN} are needed"
    conclusion = f"{size}: {case.conclusion.value}"
    direction = "lower" if effect.change < 0 else "higher"
    change = f"the capacity of B is {abs(effect.change):.1%} {direction} than the capacity of A"
    interval = f"95 % interval {_percent(effect.low - 1)} to {_percent(effect.high - 1)}"
    if case.conclusion is Conclusion.NONE_SEEN:
        return (
            f"{conclusion}; measured {_percent(effect.change)}, {interval}; a loss below "
            f"{effect.smallest_visible:.1%} cannot be detected"
        )
    if case.conclusion is Conclusion.SMALL:
        return f"{conclusion}, {min_effect:.0%}: {change}, {interval}"
    return f"{conclusion}: {change}, {interval}"


class SideReporter(Reporter):
    """Adds the side's letter to events, and passes the events to another reporter."""

    def __init__(self, reporter: Reporter, side: Side) -> None:
        self._reporter = reporter
        self._side = side

    def report(self, event: Event) -> None:
        """Show one event of this side."""
        if isinstance(event, PhaseStarted):
            event = replace(event, text=f"{self._side.value}: {event.text}")
        elif isinstance(event, TrialFinished):
            event = replace(event, side=self._side.value)
        self._reporter.report(event)

    def confirm(self, question: str) -> bool:
        """Ask the user a question through the reporter that receives the events."""
        return self._reporter.confirm(question)


class ComparisonRun(Campaign[int]):
    """Compares two sides at each message size. Finished results survive an error or an interrupt.

    In the tables each side has its own run id, `ID-a` or `ID-b`.

    Args:
        sides: the set-ups of both sides.
        effort: the numbers of trials for each message size.
        min_effect: the smallest change of the capacity that counts [ratio].
        budget_s: time after which no further trial begins [s]; None for no time budget.
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
        self._rigs: dict[Side, Rig] = {}
        self._began_s = 0.0
        self._answer = ComparisonAnswer({}, (), (), min_effect)

    @property
    def configurations(self) -> Mapping[str, Configuration]:
        """Name of each side → its configuration."""
        return {_name(side): setup.config for side, setup in self._sides.items()}

    @property
    def shares_brokers(self) -> bool:
        """True if both sides load the same brokers, because the sides differ only in the workload
        or the goal.
        """
        return share_brokers(self._sides)

    def reporter_of(self, name: str, reporter: Reporter) -> Reporter:
        """A reporter that adds the side's letter to events."""
        return SideReporter(reporter, Side(name.upper()))

    @property
    def _config(self) -> Configuration:
        """The configuration of side A. Side B has the same message sizes and the same settings of
        the search.
        """
        return self._sides[Side.A].config

    @property
    def _labels(self) -> str:
        return " against ".join(setup.label for setup in self._sides.values())

    def schedule(self) -> Iterator[list[Turn[int]]]:
        """The schedule: each message size once. At each size the sides take turns in the order A B
        B A.
        """
        yield once(self._config.workload.message_bytes)

    def title(self, turn: Turn[int]) -> str:
        """The message size, or `the mix`, as a title."""
        case = ComparedSize(turn.case, is_mix=self._config.workload.mix is not None)
        return case.title if case.is_mix else f"messages of {case.title}"

    # --- the plan -----------------------------------------------------------

    def forecast(self, case: int) -> Plan:
        """The plan of the pairs at one message size. The duration and the bytes in the plan are
        estimates. They are computed as for a search with the same number of trials.
        """
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
        """Always 0, because the measurement of each message size begins even if the time budget is
        used up. The time budget limits the number of pairs at each message size.
        """
        return 0.0

    def starting_s(self, groups: Sequence[Sequence[Turn[int]]]) -> float:
        """The time that the start of Spark and of the brokers takes [s]. The brokers of side A and
        the brokers of side B start one after the other.
        """
        clusters = (setup.config.cluster for setup in self._sides.values())
        return SPARK_S + sum(brokers_s(each) + LOOKS_S for each in clusters)

    def about(self, groups: Sequence[Sequence[Turn[int]]]) -> tuple[str, ...]:
        """Plan notes: the sides, the number of pairs, and the memory."""
        effort, sides = self._effort, self._sides
        notes = [
            *(f"{side.value} is {setup.label}" for side, setup in sides.items()),
            f"for each size {effort.pairs} pairs at a load that saturates both sides, and "
            f"{effort.steady_pairs} pairs at a load that both sides sustain, in the order A B B "
            "A; both "
            + (
                "sides load the same brokers"
                if self.shares_brokers
                else "clusters run all the time"
            ),
        ]
        if any(side.memory_bytes for side in sides.values()):
            memory = format_volume(needed_bytes(sides))
            notes.append(f"the brokers and Spark need about {memory} of memory")
        if self.budget_s is not None:
            limit = format_duration(self.budget_s)
            notes.append(f"no trial begins later than {limit} after the first trial")
        return tuple(notes)

    def plan(self, out: Path) -> Plan:
        """The plan of all pairs at all message sizes, within the time budget."""
        plan, most_s = super().plan(out), self.budget_s or math.inf
        return replace(plan, cluster=self._labels, duration_s=min(plan.duration_s, most_s))

    # --- measuring ----------------------------------------------------------

    def evaluate(self, run: RunState, error: BaseException | None) -> None:
        """Compute the answer from the finished trials."""
        self._answer = answer_of(self._facts(run), self._cases, self._min_effect)

    @contextmanager
    def opened(self, run: RunState, group: Sequence[Turn[int]]) -> Iterator[None]:
        """Open the resources for the trials of side A and side B, and close them at the end."""
        self._began_s = time.time()
        self._rigs = {
            side: Rig.open(run.contexts[_name(side)], setup.config.cluster.warm_up_max_s)
            for side, setup in self._sides.items()
        }
        with self._rigs[Side.A], self._rigs[Side.B]:
            yield

    def measure_turn(self, run: RunState, turn: Turn[int], budget: TimeBudget) -> None:
        """Measure the pairs of one message size, within this size's share of the time budget."""
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
        """The highest load per broker that the guards of both sides permit, and the configuration
        key that sets this maximum.
        """
        found = []
        for context in run.contexts.values():
            guards, most = context.guards, self._config.goal.search.load_cap
            load, key = guards.limits.highest_load(partial(context.pattern, message_bytes), most)
            words = guards.key_words(key) if key else "goal.search.load_cap"
            found.append((load / context.brokers, words))
        return min(found)

    def _hold(
        self, run: RunState, message_bytes: int, side: Side, load_per_broker: float, reason: str
    ) -> Trial:
        load = load_of_cluster(load_per_broker, run.contexts[_name(side)].brokers)
        done = sum(len(context.history.trials) for context in run.contexts.values())
        left = len(self._sides[side].config.workload.message_bytes) * self._effort.trials - done
        return self._rigs[side].trial(message_bytes, load, f"{side.value}: {reason}", max(1, left))

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
        """The outcome of the comparison. After an error, the outcome depends on the error. Without
        an error, the outcome depends on the answer.
        """
        return outcome_with(self._answer) if error is None else outcome_of(error)

    def answer(self, run: RunState, outcome: RunOutcome) -> CampaignAnswer:
        """The files, the tables and the sentences of the comparison."""
        tables, texts = answer_tables(self._answer), tuple(sentences(self._answer))
        caveats = caveats_of_sides({s: f.caveats for s, f in self._answer.sides.items()})
        config, (started_at, finished_at) = self._config, run.times
        head = {
            "compare_id": run.order.run_id,
            "started_at": started_at,
            "finished_at": finished_at,
            "workload": config.workload.name,
            "goal": config.goal_names,
            **asdict(outcome),
            "caveat": self._caveat,
            "pairs": self._effort.pairs,
        }
        return CampaignAnswer(
            "compare",
            partial(write_answer, self._answer, head),
            partial(
                render,
                "answer.html",
                run=head,
                title=f"{self._labels}, with {config.workload.name}",
                about=f"comparison {run.order.run_id}, goal {config.goal_names}",
                sentences=texts or [text for case in self._cases for text in case.notes],
                tables=tables,
                facts=(),
                file="compare.json",
            ),
            tables,
            (
                *(Notice(Level.NOTE, text) for text in texts),
                *(Notice(Level.WARNING, f"caveat: {text}") for text in caveats),
            ),
            "fix the disk, then read the trials from the tables",
        )

    @property
    def _caveat(self) -> str:
        """The caveats of both sides as one text."""
        of_cluster = {side: setup.config.cluster.caveats for side, setup in self._sides.items()}
        found = {
            side: (*own, *(facts.caveats if (facts := self._answer.sides.get(side)) else ()))
            for side, own in of_cluster.items()
        }
        return "; ".join(caveats_of_sides(found))


def _name(side: Side) -> str:
    """The name of a side, which is the suffix of its run id."""
    return side.value.lower()
