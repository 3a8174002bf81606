"""A campaign measures several cases within one time budget, and writes one answer.

A turn is one measurement of one case; a case with repeats has several turns. Each kind of campaign
(sweep, night, comparison) defines its cases, the order of its turns, and the measurement of a case.
`metrics.comparing` contains the calculations. All kinds of campaigns share the code for resuming,
the budget, the forecast and the answer's files. `measurement_named` finds the measurements in
`jobs/measurements` and in installed packages.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Generic, TypeVar

import jobs.measurements
from jobs.console.events import Notice, PhaseStarted, Plan, Table, note, warn
from jobs.runs.estimate import TimeBudget
from jobs.runs.lifecycle import Body, RunState
from jobs.runs.measurement import Measurement
from jobs.runs.outcome import RunOutcome
from jobs.runs.results import ArtifactWriter
from metrics.common.errors import ConfigError, NoConclusionError
from metrics.common.extensions import MEASUREMENTS, explain_failure, installed_names, load_extension
from metrics.comparing.effects import Side
from metrics.comparing.figures import FigureKind
from metrics.reporting.files import write_atomic

CaseT = TypeVar("CaseT")


@dataclass(frozen=True)
class Turn(Generic[CaseT]):
    """One measurement of a case, in one repeat of a campaign.

    Attributes:
        number: the number of the case in its campaign, from 1.
        case: the case.
        repeat: the number of the repeat, from 1.
    """

    number: int
    case: CaseT
    repeat: int = 1

    @property
    def name(self) -> str:
        """The name of the turn in its campaign, such as `c02-r1`; resuming does not change it."""
        return f"c{self.number:02}-r{self.repeat}"


def once(cases: Sequence[CaseT]) -> list[Turn[CaseT]]:
    """A schedule that measures each case once, in the order of the cases."""
    return [Turn(number, case) for number, case in enumerate(cases, 1)]


def shuffled(
    cases: Sequence[CaseT], repeats: int, seed: int, cluster_of: Callable[[CaseT], object]
) -> Iterator[list[Turn[CaseT]]]:
    """A schedule that measures each case `repeats` times, in random order. In each repeat, cases
    with the same cluster follow one another.

    The order differs between repeats, so that a slow hour does not affect the same case in all
    repeats. In each repeat, the brokers of each cluster are started once.

    Args:
        cases: the cases.
        repeats: number of measurements of each case.
        seed: seed of the random order.
        cluster_of: function that returns a key for the cluster of a case; cases with equal keys
            share brokers.

    Yields:
        A group of measurements: they belong to one repeat, and their cases share a cluster.
    """
    for repeat in range(1, repeats + 1):
        chance = random.Random(f"{seed} {repeat}")
        groups: list[list[Turn[CaseT]]] = []
        for number, case in enumerate(cases, 1):
            turn = Turn(number, case, repeat)
            for group in groups:
                if cluster_of(group[0].case) == cluster_of(case):
                    group.append(turn)
                    break
            else:
                groups.append([turn])
        chance.shuffle(groups)
        for group in groups:
            chance.shuffle(group)
            yield group


def order_of(pair: int) -> tuple[Side, Side]:
    """The order of the two sides in the pair with this number: A B, B A, A B, …

    The order alternates, so that a machine that becomes slower affects both sides equally.
    """
    return (Side.A, Side.B) if pair % 2 == 0 else (Side.B, Side.A)


@dataclass(frozen=True)
class Missing(Generic[CaseT]):
    """A measurement without a result.

    Attributes:
        turn: the case, and the number of its repeat.
        is_begun: whether the measurement began; False if it did not fit into the budget.
        why: the reason for the missing result, as a clause.
    """

    turn: Turn[CaseT]
    is_begun: bool
    why: str


@dataclass(frozen=True)
class CampaignAnswer:
    """The answer of a campaign, for programs and for people.

    Attributes:
        name: the name of the answer's files, such as `sweep` for sweep.json and sweep.html.
        write: function that gets a path, and writes the answer for programs into the file at this
            path.
        page: function that returns the content of the answer's HTML page.
        tables, notices: the answer for the terminal.
        remedy: how the user can get files that could not be written.
        more: each further file as a tuple of its kind, its path and the function that writes it.
    """

    name: str
    write: Callable[[Path], object]
    page: Callable[[], str]
    tables: Sequence[Table]
    notices: Sequence[Notice]
    remedy: str
    more: Sequence[tuple[str, Path, Callable[[Path], object]]] = ()


class Campaign(Body, Generic[CaseT]):
    """Measures the cases of a schedule one after another. After an error or an interrupt, the
    campaign keeps all earlier results.

    Args:
        budget_s: time limit [s], counted from the start of the run. A measurement of a case does
            not begin if it would probably end after this limit. None for no time limit.

    Attributes:
        missing: the measurements that have no result, in the order of the schedule.
    """

    def __init__(self, budget_s: float | None) -> None:
        self.budget_s = budget_s
        self.missing: list[Missing[CaseT]] = []
        self._plans: dict[int, Plan] = {}

    # --- defined by each kind of campaign ------------------------------------

    @abstractmethod
    def schedule(self) -> Iterator[list[Turn[CaseT]]]:
        """The measurements of cases in their order, in groups that share brokers."""

    @abstractmethod
    def title(self, turn: Turn[CaseT]) -> str:
        """The name of one measurement of a case, for messages."""

    @abstractmethod
    def forecast(self, case: CaseT) -> Plan:
        """The plan of one measurement of a case."""

    @abstractmethod
    def starting_s(self, groups: Sequence[Sequence[Turn[CaseT]]]) -> float:
        """The estimated time [s] that the campaign needs in addition to its trials."""

    @abstractmethod
    def about(self, groups: Sequence[Sequence[Turn[CaseT]]]) -> tuple[str, ...]:
        """The notes that the plan shows before all other notes."""

    def take_over(self, run: RunState, turn: Turn[CaseT]) -> bool:
        """In a resumed run, load the results of a measurement that was made before the
        interruption.

        Returns:
            False if the run has no results of this measurement.
        """
        return False

    def needed_s(self, turn: Turn[CaseT]) -> float:
        """Time [s] that the budget must still have when one measurement of a case begins."""
        return self.plan_of(turn).duration_s

    @contextmanager
    def opened(self, run: RunState, group: Sequence[Turn[CaseT]]) -> Iterator[None]:
        """Open the resources that the measurements of `group` share, such as brokers."""
        yield

    @abstractmethod
    def measure_turn(self, run: RunState, turn: Turn[CaseT], budget: TimeBudget) -> None:
        """Measure the case of `turn` once, and keep the results.

        Raises:
            NoConclusionError: the measurement has no result; the campaign continues with the next
                measurement.
            RedlineError: an error occurred that ends the whole campaign.
        """

    @abstractmethod
    def answer(self, run: RunState, outcome: RunOutcome) -> CampaignAnswer:
        """The answer of the campaign, based on all results so far."""

    # --- the same for all campaigns ------------------------------------------

    def plan_of(self, turn: Turn[CaseT]) -> Plan:
        """The plan of one measurement of a case; all repeats of the case share one plan."""
        if turn.number not in self._plans:
            self._plans[turn.number] = self.forecast(turn.case)
        return self._plans[turn.number]

    def plan(self, out: Path) -> Plan:
        """The plan of the campaign: all measurements' plans together, and the time `starting_s`."""
        groups = list(self.schedule())
        plans = [self.plan_of(turn) for group in groups for turn in group]
        written = [each.write_bytes_max for each in plans]
        first, by_case = plans[0], list(self._plans.values())
        return replace(
            first,
            out=out,
            message_bytes=tuple(dict.fromkeys(b for each in by_case for b in each.message_bytes)),
            resolution=next((each.resolution for each in plans if each.resolution), None),
            trials_estimated=sum(each.trials_estimated for each in plans),
            duration_s=sum(each.duration_s for each in plans),
            starting_s=self.starting_s(groups),
            peak_mb_per_s=max(each.peak_mb_per_s or 0.0 for each in plans),
            disk_bytes_max=max(each.disk_bytes_max or 0.0 for each in plans) or None,
            write_bytes_max=sum(each or 0.0 for each in written) if all(written) else None,
            notes=(*self.about(groups), *first.notes),
        )

    def measure(self, run: RunState) -> None:
        """Make all measurements of the schedule for which a resumed run has no results yet."""
        budget = TimeBudget(self.budget_s, run.started_s)
        groups = [[t for t in group if not self.take_over(run, t)] for group in self.schedule()]
        for group in filter(None, groups):
            with self.opened(run, group):
                for turn in group:
                    self._measure_in_time(run, turn, budget)
        self.evaluate(run, None)

    def _measure_in_time(self, run: RunState, turn: Turn[CaseT], budget: TimeBudget) -> None:
        title, reporter = self.title(turn), run.order.reporter
        if why := budget.refusal(self.needed_s(turn)):
            self.missing.append(Missing(turn, is_begun=False, why=why))
            warn(reporter, f"{title} is not begun: {why}")
            return
        reporter.report(PhaseStarted(title))
        try:
            self.measure_turn(run, turn, budget)
        except NoConclusionError as error:  # other turns may still have an answer
            self.missing.append(Missing(turn, is_begun=True, why=str(error)))
            warn(reporter, f"{title}: {error}")

    def conclude(self, run: RunState, outcome: RunOutcome) -> None:
        """Write the answer and its page, and report the figures."""
        answer, reporter, files = self.answer(run, outcome), run.order.reporter, ArtifactWriter()
        file = run.order.folder / f"{answer.name}.json"
        page = file.with_suffix(".html")
        files.write_answer_file("answer", file, run.order.json_file, answer.write)
        files.write("page", page, lambda: write_atomic(page, answer.page()))
        for what, path, write in answer.more:
            files.write(what, path, partial(write, path))
        for table in answer.tables:
            reporter.report(table)
        for notice in answer.notices:
            reporter.report(notice)
        for what, where in (*files.written, ("tables", run.order.tables_or_default)):
            note(reporter, f"{what}: {where}")
        files.require_all(answer.remedy)


_ATTRIBUTES = {"figure": FigureKind, "unit": str}
"""Attribute of a package's measurement class → the required type. These attributes are checked
before the trials, because the answer needs them after the trials.
"""


def own_names() -> tuple[str, ...]:
    """The names of the project's own measurements, sorted."""
    modules = pkgutil.iter_modules(jobs.measurements.__path__)
    return tuple(sorted(each.name.replace("_", "-") for each in modules))


def measurement_named(name: str) -> Measurement:
    """The measurement with this name.

    Raises:
        ConfigError: the name is unknown, or the package that adds the measurement is broken.
    """
    if name in own_names():
        return _own(name)
    if name not in installed_names(MEASUREMENTS):
        others = ", ".join(installed_names(MEASUREMENTS)) or "none is installed"
        raise ConfigError(
            f"the key asks is {name}; expected {', '.join(own_names())}, or a measurement of an "
            f"installed package ({others}); correct the name, or install the package"
        )
    added = load_extension(MEASUREMENTS, name)

    def broken(why: str) -> ConfigError:
        return ConfigError(
            f"{added.package} adds {name} to {MEASUREMENTS}, {why}; report this to the authors of "
            "the package, or uninstall the package"
        )

    if not (isinstance(added.found, type) and issubclass(added.found, Measurement)):
        raise broken(
            "which is not a class of measurements; expected a subclass of "
            "jobs.runs.measurement.Measurement"
        )
    own = getattr(added.found, "name", None)
    if own != name:
        raise broken(f"and its class has the name {own!r}; expected the same name")
    for attribute, kind in _ATTRIBUTES.items():
        given = getattr(added.found, attribute, None)
        if not isinstance(given, kind):
            has = f"no {attribute}" if given is None else f"the {attribute} {given!r}"
            raise broken(
                f"and its class has {has}; expected the type {kind.__name__}, see docs/extending.md"
            )
    try:
        found: Measurement = added.found()
    except Exception as error:
        raise explain_failure(f"the measurement {name} of {added.package}", error) from error
    found.package = added.package
    return found


@cache
def _own(name: str) -> Measurement:
    module = importlib.import_module(f"{jobs.measurements.__name__}.{name.replace('-', '_')}")
    found: type[Measurement] = module.MEASUREMENT
    return found()
