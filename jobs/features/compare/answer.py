"""The pairs of trials in a comparison: how they are measured, and the answer in compare.json. The
sides take turns in the order A B B A (`jobs.campaigns.campaign.order_of`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from jobs.campaigns.campaign import order_of
from jobs.runs.outcome import NO_CONCLUSION, RunOutcome
from metrics.columns import as_document
from metrics.common.errors import NoConclusionError, RegressionError
from metrics.comparing.cause import (
    Cause,
    SideEvidence,
    broker_differences,
    likely_cause,
    release_of,
    resource_use,
)
from metrics.comparing.effects import (
    CAPACITY,
    CONFIDENCE,
    PAIRS_MIN,
    STEADY,
    Compared,
    Conclusion,
    Side,
    TrialPair,
    achieved_share,
    compared,
    conclude,
)
from metrics.reporting.files import json_text, write_atomic
from metrics.tables.rows import Difference
from metrics.trial.trial import Trial
from metrics.units import format_size
from search.model import PRODUCERS, Verdict

SATURATED_ACHIEVED_SHARE = 0.85
"""Brokers are saturated if they acknowledge at most this share of the offered load [ratio]."""
EXCESS = 1.5
"""The load of the saturated pairs is the capacity of the faster side, multiplied by this value
[ratio].
"""
STEADY_SHARE = 0.6
"""The first load of the steady pairs is the capacity of the slower side, multiplied by this value
[ratio].
"""
STEADY_LOWER = 0.5
"""If a side does not sustain the load of the first steady pair, the load is multiplied by this
value [ratio]. Saturated brokers get fuller batches, so their capacity can be several times the load
that they sustain.
"""
STEADY_LOWERS_MAX = 4
PROBES_MAX = 12
RAISES_MAX = 6
RAISE = 1.25
"""Minimum factor by which the load increases after a trial that did not saturate a side's brokers
[ratio]."""
PROPORTIONS_MAX = 0.1
"""Saturated brokers acknowledge a share of the offered load of each part of a mix. The largest
accepted difference between these shares is this value [ratio]. If the difference is larger than
this value, the answer has a note.
"""
ALL_TAKEN = 0.97
"""If brokers acknowledge more than this share of the offered load, their capacity cannot be
estimated [ratio].
"""


Hold = Callable[[Side, float, str], Trial]
"""Function (side, load, reason) that makes one trial of a side and appends the trial to the tables.
The argument `load` is the load per broker, so that clusters of different sizes can be compared. The
argument `reason` is the reason for the trial, which the display shows.
"""


@dataclass(frozen=True)
class Effort:
    """The numbers of pairs and of repeats for one message size.

    Attributes:
        pairs: number of pairs of saturated trials. The conclusion of the comparison depends on the
            saturated pairs.
        steady_pairs: number of pairs of trials at a load that both sides sustain. The readings of
            these trials help to explain a difference between the capacities of the sides.
        repeats_max: maximum number of repeats of an INVALID trial or pair.
    """

    pairs: int
    steady_pairs: int
    repeats_max: int = 2

    @property
    def trials(self) -> int:
        """The number of trials, including three trials that find a load which saturates both sides.
        Repeats of INVALID trials are not counted.
        """
        return 3 + 2 * (self.pairs + self.steady_pairs)


@dataclass
class ComparedSize:
    """The measurements at one message size.

    Attributes:
        message_bytes: message size, or the mean message size of a mix [B].
        is_mix: whether the traffic is a mix. The loads of a mix are scales, which multiply the
            rates of all parts [%].
        load: load per broker in the newest saturated trials.
        steady_load: load per broker in the steady trials. The steady load is reduced until both
            sides sustain it.
        saturated, steady: the pairs of saturated trials and the pairs of steady trials, in order.
        notes: remarks on the measurement, one sentence each.
    """

    message_bytes: int
    is_mix: bool = False
    load: float | None = None
    steady_load: float | None = None
    saturated: list[TrialPair] = field(default_factory=list)
    steady: list[TrialPair] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The message size, such as `1 kB`, or `the mix`."""
        return "the mix" if self.is_mix else format_size(self.message_bytes)


@dataclass(frozen=True)
class CaseComparer:
    """Measures one message size on both sides.

    Attributes:
        hold: function that makes one trial of one side at a given load; see `Hold`.
        effort: the numbers of trials.
        load_start, load_cap: first load per broker, and highest permitted load per broker.
        has_time: function that returns whether the time budget permits another trial.
        words: the unit of a load in the plural, such as `producers`.
        cap_key: the configuration key that limits the load to `load_cap`.
    """

    hold: Hold
    effort: Effort
    load_start: float
    load_cap: float
    has_time: Callable[[], bool] = lambda: True
    words: str = PRODUCERS.many
    cap_key: str = "goal.search.load_cap"

    def measure(self, case: ComparedSize) -> None:
        """Measure one message size. After an error or an interrupt the case contains all finished
        pairs.

        Raises:
            NoConclusionError: no load saturates both sides.
        """
        case.load = self._saturating_load()
        self._saturated_pairs(case)
        if not case.saturated:
            return
        capacities = [median(_taken(p.of(side)) for p in case.saturated) for side in Side]
        case.steady_load = STEADY_SHARE * min(capacities)
        self._steady_pairs(case)
        self._note_overloads(case)
        self._note_proportions(case)

    # --- finding the load ---------------------------------------------------

    def _saturating_load(self) -> float:
        """Increase the load of each side until the side acknowledges clearly less than the offered
        load.
        """
        load, capacities = self.load_start, list[float]()
        probes = 0
        for side in Side:
            while True:
                probes += 1
                trial = self._valid(side, load, "finding a load that saturates both sides")
                if trial is None or probes > PROBES_MAX:
                    raise NoConclusionError(
                        f"no load saturates side {side.value}: the trials at {load:g} "
                        f"{self.words} per broker are INVALID; expected valid trials; see the "
                        "reasons in the table trials"
                    )
                share = achieved_share(trial)
                if is_full(trial):
                    capacities.append(_taken(trial))
                    break
                if load >= self.load_cap:
                    raise NoConclusionError(
                        f"side {side.value} acknowledges {share:.0%} of {load:g} {self.words} per "
                        "broker, which is the highest permitted load; expected a load that "
                        f"saturates the brokers; raise {self.cap_key}"
                    )
                load = min(2.0 * load, self.load_cap)
        return min(EXCESS * max(capacities), self.load_cap)

    # --- pairs --------------------------------------------------------------

    def _saturated_pairs(self, case: ComparedSize) -> None:
        assert case.load is not None, "found before"
        failures = raises = 0
        while len(case.saturated) < self.effort.pairs:
            if not self._is_time_left(case, len(case.saturated), self.effort.pairs):
                return
            number = len(case.saturated)
            trials = self._pair(number, case.load, f"saturated, pair {number + 1}", is_full)
            unsaturated = next((trial for trial in trials.values() if not is_full(trial)), None)
            if unsaturated is not None:
                raises += 1
                case.load = self._raised(case.load, unsaturated)
            elif len(trials) == len(Side):
                case.saturated.append(TrialPair(trials[Side.A], trials[Side.B]))
            else:
                failures += 1
            if failures > self.effort.repeats_max or raises > RAISES_MAX:
                case.notes.append(
                    f"the measurement of pairs ended after {failures} pairs with INVALID trials "
                    f"and {raises} pairs with a side that was not saturated"
                )
                return

    def _raised(self, load: float, unsaturated: Trial) -> float:
        """The next load after a trial that did not saturate the brokers."""
        share = achieved_share(unsaturated)
        factor = 2.0 if share > ALL_TAKEN else max(RAISE, EXCESS * share)
        return min(factor * load, self.load_cap)

    def _steady_pairs(self, case: ComparedSize) -> None:
        """Measure the steady pairs. If a trial of the first pair is OVERLOADED, the first pair is
        repeated at a lower load.
        """
        assert case.steady_load is not None, "set before"
        lowers = number = 0
        while number < self.effort.steady_pairs:
            if not self._is_time_left(case, number, self.effort.steady_pairs):
                return
            may_lower = not case.steady and lowers < STEADY_LOWERS_MAX
            is_good = _is_sustained if may_lower else (lambda _trial: True)
            trials = self._pair(number, case.steady_load, f"steady, pair {number + 1}", is_good)
            if may_lower and not all(map(_is_sustained, trials.values())):
                lowers += 1
                case.steady_load *= STEADY_LOWER
                continue
            number += 1
            if len(trials) == len(Side):
                case.steady.append(TrialPair(trials[Side.A], trials[Side.B]))

    def _note_overloads(self, case: ComparedSize) -> None:
        for side in Side:
            verdicts = [pair.of(side).judgement.verdict for pair in case.steady]
            overloads = verdicts.count(Verdict.OVERLOADED)
            if overloads:
                case.notes.append(
                    f"side {side.value} was OVERLOADED in {overloads} of {len(verdicts)} steady "
                    "trials, so this side did not sustain the load of these trials"
                )

    def _note_proportions(self, case: ComparedSize) -> None:
        """Add a note if saturated brokers acknowledge different shares of the parts of a mix."""
        for side in Side:
            taken = median_shares([pair.of(side) for pair in case.saturated])
            if taken and max(taken.values()) - min(taken.values()) > PROPORTIONS_MAX:
                named = ", ".join(f"{share:.0%} of {part}" for part, share in taken.items())
                case.notes.append(
                    f"saturated brokers of side {side.value} acknowledged {named}; the capacity "
                    "applies to a mix with these shares"
                )

    def _is_time_left(self, case: ComparedSize, done: int, wanted: int) -> bool:
        if self.has_time():
            return True
        case.notes.append(f"the time budget ended after {done} of {wanted} pairs")
        return False

    def _pair(
        self, number: int, load: float, reason: str, is_good: Callable[[Trial], bool]
    ) -> dict[Side, Trial]:
        """One trial of each side. If the trial of the first side is INVALID, or `is_good` rejects
        it, the trial of the second side is omitted.
        """
        trials: dict[Side, Trial] = {}
        for side in order_of(number):
            trial = self._valid(side, load, reason)
            if trial is None:
                return trials
            trials[side] = trial
            if not is_good(trial):
                return trials
        return trials

    def _valid(self, side: Side, load: float, reason: str) -> Trial | None:
        """A valid trial. An INVALID trial is repeated. The result is None if all repeats are
        INVALID.
        """
        for _ in range(1 + self.effort.repeats_max):
            trial = self.hold(side, load, reason)
            if trial.judgement.verdict is not Verdict.INVALID:
                return trial
        return None


def is_full(trial: Trial) -> bool:
    """Whether the brokers acknowledged clearly less than the offered load."""
    return achieved_share(trial) <= SATURATED_ACHIEVED_SHARE


def _is_sustained(trial: Trial) -> bool:
    return trial.judgement.verdict is Verdict.SUSTAINED


def median_shares(trials: Sequence[Trial]) -> dict[str, float]:
    """Part of a mix → median share of the part's records that brokers acknowledged [ratio]."""
    parts: dict[str, list[float]] = {}
    for trial in trials:
        for name, own in trial.evidence.client.parts.items():
            parts.setdefault(name, []).append(own.achieved_share or 0.0)
    return {name: median(shares) for name, shares in parts.items()}


def _taken(trial: Trial) -> float:
    """The acknowledged load per broker, on the goal's axis."""
    return achieved_share(trial) * trial.pattern.on_axis / max(1, trial.pattern.brokers)


def load_of_cluster(load_per_broker: float, brokers: int) -> int:
    """The load of a whole cluster, on the goal's axis, rounded up."""
    return max(1, math.ceil(load_per_broker * brokers))


SCHEMA_VERSION = 1


@dataclass(frozen=True)
class SideFacts:
    """The facts of one side.

    Attributes:
        label: the side, as written on the command line.
        run_id: the id of the side's trials in the tables.
        cluster: the name of the side's cluster file.
        brokers: the number of brokers.
        environment: the facts about the side, as in the table `runs`.
        settings: path of each key of the workload and the goal → its value.
        caveats: restrictions of the side's figures, one clause each.
    """

    label: str
    run_id: str
    cluster: str
    brokers: int
    environment: Mapping[str, str]
    settings: Mapping[str, str] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()

    @property
    def release(self) -> str:
        """The release of the brokers and the metadata mode, as text; empty if unknown."""
        return release_of(self.environment).text

    @property
    def compared(self) -> dict[str, str]:
        """A map with all facts and all settings of the side, by name."""
        return {**self.environment, **self.settings}


@dataclass(frozen=True)
class CaseAnswer:
    """The answer at one message size.

    Attributes:
        case: the measurements at the message size: the pairs of trials, and their loads.
        capacity: the comparison of the capacities, on which the conclusion depends.
        steady: the comparisons of readings at a load that both sides sustain.
        conclusion: the conclusion about the difference between the capacities.
        evidence: side → the trials and the environment that can explain a difference.
        cause: the likely cause of the difference; None without a significant difference.
    """

    case: ComparedSize
    capacity: Compared
    steady: tuple[Compared, ...]
    conclusion: Conclusion
    evidence: Mapping[Side, SideEvidence]
    cause: Cause | None


@dataclass(frozen=True)
class ComparisonAnswer:
    """The answer of a comparison.

    Attributes:
        sides: the facts of both sides.
        cases: the answers, one for each message size whose measurement has begun.
        differences: the differences between the sides that can affect the brokers.
        min_effect: the smallest relevant change of the capacity [ratio].
    """

    sides: Mapping[Side, SideFacts]
    cases: tuple[CaseAnswer, ...]
    differences: tuple[Difference, ...]
    min_effect: float


def outcome_with(answer: ComparisonAnswer) -> RunOutcome:
    """The outcome of a comparison that ended without an error."""
    if any(case.conclusion is Conclusion.REGRESSION for case in answer.cases):
        return RunOutcome("done", RegressionError.exit_code)
    unanswered = [c.case for c in answer.cases if c.conclusion is Conclusion.NO_ANSWER]
    if unanswered:
        sizes = ", ".join(
            each.title if each.is_mix else f"{each.message_bytes} B" for each in unanswered
        )
        return RunOutcome(
            NO_CONCLUSION,
            NoConclusionError.exit_code,
            f"no conclusion at {sizes}: too few pairs are valid; expected at least {PAIRS_MIN} "
            "valid pairs; "
            "raise --pairs or --budget-s, or see the reasons of INVALID trials in the table trials",
        )
    return RunOutcome()


def answer_of(
    sides: Mapping[Side, SideFacts], cases: Sequence[ComparedSize], min_effect: float
) -> ComparisonAnswer:
    """The answer that is computed from the trials. The answer has no cases if a side has not been
    opened yet.
    """
    if len(sides) < len(Side):
        return ComparisonAnswer(sides, (), (), min_effect)
    capacities = [compared(CAPACITY, case.saturated) for case in cases]
    conclusions = conclude([each.effect for each in capacities], min_effect)
    answers = []
    for case, capacity, conclusion in zip(cases, capacities, conclusions, strict=True):
        evidence = {
            side: SideEvidence(
                side.value,
                [pair.of(side) for pair in case.saturated],
                [pair.of(side) for pair in case.steady],
                sides[side].compared,
            )
            for side in Side
        }
        slower = {Conclusion.REGRESSION: Side.B, Conclusion.IMPROVEMENT: Side.A}.get(conclusion)
        answers.append(
            CaseAnswer(
                case,
                capacity,
                tuple(compared(measure, case.steady) for measure in STEADY),
                conclusion,
                evidence,
                None if slower is None else likely_cause(evidence[slower], evidence[slower.other]),
            )
        )
    differing = broker_differences(*(sides[side].compared for side in Side))
    return ComparisonAnswer(sides, tuple(answers), differing, min_effect)


def caveats_of_sides(caveats: Mapping[Side, Sequence[str]]) -> list[str]:
    """The caveats of both sides without repetition. If a caveat applies to only one side, its text
    begins with the letter of the side.
    """
    found = []
    for each in dict.fromkeys(text for own in caveats.values() for text in own):
        holders = [side.value for side, own in caveats.items() if each in own]
        found.append(each if len(holders) == len(caveats) else f"{holders[0]}: {each}")
    return found


def write_answer(answer: ComparisonAnswer, head: Mapping[str, Any], path: Path) -> None:
    """Write compare.json, as docs/compare.md describes it.

    Args:
        head: the fields about the comparison itself, such as its times and its status.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        **head,
        "min_effect": answer.min_effect,
        "confidence": CONFIDENCE,
        **dict.fromkeys(("a", "b")),
        **{
            side.value.lower(): {**as_document(facts), "release": facts.release}
            for side, facts in answer.sides.items()
        },
        "differences": [
            {"name": each.name, "a": each.before, "b": each.after} for each in answer.differences
        ],
        "cases": [_case(case) for case in answer.cases],
    }
    write_atomic(path, json_text(document))


def _case(answer: CaseAnswer) -> dict[str, Any]:
    case = answer.case
    return {
        "bpm": case.message_bytes,
        "conclusion": answer.conclusion.value,
        "load_per_broker": case.load,
        "steady_load_per_broker": case.steady_load,
        "capacity": _measured(answer.capacity),
        "steady": [_measured(each) for each in answer.steady],
        "bound": {
            side.value.lower(): {
                "resource": evidence.limiting_resource.value,
                "evidence": evidence.attribution,
                "used_saturated": _used(resource_use(evidence.saturated)),
                "used_steady": _used(resource_use(evidence.steady)),
            }
            for side, evidence in answer.evidence.items()
        },
        "cause": None if answer.cause is None else as_document(answer.cause),
        "trials": {
            kind: [[pair.a.number, pair.b.number] for pair in pairs]
            for kind, pairs in (("saturated", case.saturated), ("steady", case.steady))
        },
        "notes": list(case.notes),
    }


def _used(table: Mapping[Any, float]) -> dict[str, float]:
    return {resource.value: used for resource, used in table.items()}


def _measured(each: Compared) -> dict[str, Any]:
    return {
        "measure": each.quantity.name,
        "a": each.mean(Side.A),
        "b": each.mean(Side.B),
        "pairs": [list(pair) for pair in each.pairs],
        "effect": None if each.effect is None else as_document(each.effect),
    }
