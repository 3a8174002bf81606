"""The answer of a comparison, and compare.json, its contract with programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.campaigns.compare.pairs import ComparedSize
from jobs.runs.outcome import NO_CONCLUSION, RunOutcome
from metrics.columns import as_document
from metrics.common.errors import NoConclusionError, RegressionError
from metrics.comparing.cause import (
    Cause,
    SideEvidence,
    broker_differences,
    likely_cause,
    resource_use,
)
from metrics.comparing.effects import CONFIDENCE, PAIRS_MIN, Conclusion, conclude
from metrics.comparing.pairs import CAPACITY, STEADY, Compared, Side, compared
from metrics.comparing.release import release_of
from metrics.reporting.files import write_atomic
from metrics.tables.environment import Difference

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class SideFacts:
    """The facts of one side.

    Attributes:
        label: the side as on the command line.
        run_id: the id of its trials in the tables.
        cluster: the name of its cluster's configuration.
        brokers: its number of brokers.
        environment: its environment, as in the table `runs`.
        settings: the values of the workload's and the goal's keys, by their paths.
        caveats: restrictions of its figures, a clause each.
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
        """The release of its brokers and the place of the metadata; empty if unknown."""
        return release_of(self.environment).text

    @property
    def compared(self) -> dict[str, str]:
        """All facts and settings in which two sides can differ."""
        return {**self.environment, **self.settings}


@dataclass(frozen=True)
class CaseAnswer:
    """The answer at one message size.

    Attributes:
        case: the trials.
        capacity: the comparison of the capacities, which decides.
        steady: the comparisons at a load that both sides sustain.
        conclusion: the kind of difference between the capacities.
        evidence: the evidence of each side.
        cause: the likely cause of the difference; None without one.
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
        cases: the answer at each message size that was begun.
        differences: the differences between the sides that can affect brokers.
        min_effect: the smallest change of the capacity that counts [ratio].
    """

    sides: Mapping[Side, SideFacts]
    cases: tuple[CaseAnswer, ...]
    differences: tuple[Difference, ...]
    min_effect: float

    @property
    def is_regression(self) -> bool:
        """Whether B is worse than A at any message size."""
        return any(case.conclusion is Conclusion.REGRESSION for case in self.cases)

    @property
    def unanswered(self) -> tuple[ComparedSize, ...]:
        """The sizes with too few pairs for an answer."""
        return tuple(c.case for c in self.cases if c.conclusion is Conclusion.NO_ANSWER)


def outcome_with(answer: ComparisonAnswer) -> RunOutcome:
    """The outcome of a comparison that was not stopped."""
    if answer.is_regression:
        return RunOutcome("done", RegressionError.exit_code)
    if answer.unanswered:
        sizes = ", ".join(
            each.title if each.is_mix else f"{each.message_bytes} B" for each in answer.unanswered
        )
        return RunOutcome(
            NO_CONCLUSION,
            NoConclusionError.exit_code,
            f"no conclusion at {sizes}: too few pairs are valid; expected {PAIRS_MIN}; raise "
            "--pairs or --budget-s, or see the reasons of INVALID trials in the table trials",
        )
    return RunOutcome()


def answer_of(
    sides: Mapping[Side, SideFacts], cases: Sequence[ComparedSize], min_effect: float
) -> ComparisonAnswer:
    """The answer of these trials; an answer without cases before both sides are open."""
    if len(sides) < len(Side):
        return ComparisonAnswer(sides, (), (), min_effect)
    capacities = [compared(CAPACITY, case.saturated) for case in cases]
    conclusions = conclude([each.effect for each in capacities], min_effect)
    answers = []
    for case, capacity, conclusion in zip(cases, capacities, conclusions, strict=True):
        evidence = {side: _evidence(sides[side], side, case) for side in Side}
        answers.append(
            CaseAnswer(
                case,
                capacity,
                tuple(compared(measure, case.steady) for measure in STEADY),
                conclusion,
                evidence,
                _cause(conclusion, evidence),
            )
        )
    differing = broker_differences(*(sides[side].compared for side in Side))
    return ComparisonAnswer(sides, tuple(answers), differing, min_effect)


def _evidence(facts: SideFacts, side: Side, case: ComparedSize) -> SideEvidence:
    return SideEvidence(
        side.value,
        [pair.of(side) for pair in case.saturated],
        [pair.of(side) for pair in case.steady],
        facts.compared,
    )


def _cause(conclusion: Conclusion, evidence: Mapping[Side, SideEvidence]) -> Cause | None:
    slower = {Conclusion.REGRESSION: Side.B, Conclusion.IMPROVEMENT: Side.A}.get(conclusion)
    return None if slower is None else likely_cause(evidence[slower], evidence[slower.other])


def caveats_of_sides(caveats: Mapping[Side, Sequence[str]]) -> list[str]:
    """The caveats of both sides, each once; one of a single side begins with its letter."""
    found = []
    for each in dict.fromkeys(text for own in caveats.values() for text in own):
        holders = [side.value for side, own in caveats.items() if each in own]
        found.append(each if len(holders) == len(caveats) else f"{holders[0]}: {each}")
    return found


def write_answer(answer: ComparisonAnswer, head: Mapping[str, Any], path: Path) -> None:
    """Write compare.json; docs/compare.md describes it.

    Args:
        head: the fields on the start and the end of the comparison.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        **head,
        "min_effect": answer.min_effect,
        "confidence": CONFIDENCE,
        **{side.value.lower(): _facts(answer.sides.get(side)) for side in Side},
        "differences": [
            {"name": each.name, "a": each.before, "b": each.after} for each in answer.differences
        ],
        "cases": [_case(case) for case in answer.cases],
    }
    text = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False, default=str)
    write_atomic(path, text + "\n")


def _facts(side: SideFacts | None) -> dict[str, Any] | None:
    return None if side is None else {**as_document(side), "release": side.release}


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
