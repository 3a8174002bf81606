"""Judging a night against the nights before it: decides, measures nothing.

Method. Each case has one positive figure a night, turned so that more is better. Its effect is
the ratio to the geometric mean of the nights before it, with Student's t prediction interval for
one night more (`effects.night_effect`): the variance from night to night combines what
the suite states with what the history shows, by a scaled inverse chi-square prior (Gelman et
al., Bayesian Data Analysis, 3rd ed., 2.6). What a change is called is `effects.conclude`'s, as in
a comparison; without history there is no conclusion.

Only like is compared with like: nights made with another instrument are left out, and named.
Nights that stood out themselves are left out too, or a loss would become the norm in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from metrics.common.bounds import Number
from metrics.comparing.effects import Conclusion, Effect, conclude, night_effect
from metrics.tables.cases import CaseRow, Outcome
from metrics.tables.environment import Difference, difference

INSTRUMENT = ("redline.", "driver.", "python.", "spark.", "package.")
"""Beginnings of the names of what measures; all else in an environment is what is measured."""
COMMIT = "redline.commit"
"""Names a change of ours without saying whether it touches a figure: it is told, and separates
no nights, or a history would begin anew with every commit. `redline.version` does separate."""
_GIB = 2**30
_NAMED_MAX = 3
_OUTCOMES = {
    Conclusion.REGRESSION: Outcome.REGRESSION,
    Conclusion.IMPROVEMENT: Outcome.IMPROVEMENT,
    Conclusion.NO_ANSWER: Outcome.NO_HISTORY,
}
"""Any other conclusion is no change."""


@dataclass(frozen=True)
class Noise:
    """How much equal nights differ, as far as it was known before there were any.

    Attributes:
        cv: standard deviation from night to night over the mean [ratio].
        weight: how many nights that statement is worth [nights].
    """

    cv: Annotated[float, Number(0, 2, above=True)] = 0.05
    weight: Annotated[float, Number(1, 1_000, "nights")] = 8.0


@dataclass(frozen=True)
class NightRule:
    """How to judge.

    Attributes:
        noise: case → what is stated of its noise.
        min_effect: a smaller change is none [share].
        history_max: the newest nights that count.
        since_s: nights before this time do not count [s since the epoch].
    """

    noise: Mapping[str, Noise]
    min_effect: float
    history_max: int
    since_s: float = 0.0


@dataclass(frozen=True)
class LeftOut:
    """Nights that were not compared with, and the one reason for it."""

    nights: tuple[str, ...]
    why: str

    @property
    def text(self) -> str:
        """`3 nights left out: driver.cores was 4, is 2`."""
        count = len(self.nights)
        return f"{count} night{'' if count == 1 else 's'} left out: {self.why}"


@dataclass(frozen=True)
class NightComparison:
    """What the history says of one case of tonight.

    Attributes:
        tonight: what was measured.
        outcome: what it means.
        effect: the change, as a ratio of merits; None without history.
        before: the night before that counted, or None.
        nights: that counted, oldest first.
        left_out: those that did not, by their reasons.
        changes: what of the subject differs from the night before.
        notes: further sentences.
    """

    tonight: CaseRow
    outcome: Outcome = Outcome.NO_HISTORY
    effect: Effect | None = None
    before: CaseRow | None = None
    nights: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    changes: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)


def is_instrument(name: str) -> bool:
    """True for a name of an environment that says what measured."""
    return name.startswith(INSTRUMENT)


def instrument_of(row: CaseRow) -> dict[str, str]:
    """What a night was measured with: the instrument's names and the trials' settings."""
    own = {
        name: _coarse(name, value)
        for name, value in row.environment.items()
        if is_instrument(name) and name != COMMIT
    }
    return {**own, **row.settings}


def _coarse(name: str, value: str) -> str:
    """Memory to the GiB: a machine of the same kind differs by what its kernel keeps."""
    if name == "driver.memory_bytes" and value.isdigit():
        return f"{round(int(value) / _GIB)} GiB"
    return value


def subject_of(row: CaseRow) -> dict[str, str]:
    """What was measured: the brokers, the controllers, their properties and the topic's."""
    return {name: value for name, value in row.environment.items() if not is_instrument(name)}


def judge_night(
    tonight: Sequence[CaseRow], history: Iterable[CaseRow], rule: NightRule
) -> tuple[NightComparison, ...]:
    """A comparison for each case of a night, in its order.

    Args:
        history: rows of any nights and cases, each night's case once.
    """
    rows = sorted(history, key=lambda row: (row.at_s, row.run_id))
    compared = [_compared(row, rows, rule) for row in tonight]
    conclusions = conclude([each.effect for each in compared], rule.min_effect)
    return tuple(
        replace(each, outcome=_OUTCOMES.get(conclusion, Outcome.NO_CHANGE))
        for each, conclusion in zip(compared, conclusions, strict=True)
    )


def _compared(row: CaseRow, rows: Sequence[CaseRow], rule: NightRule) -> NightComparison:
    """The effect of one case, and which nights are behind it."""
    earlier = [
        each
        for each in rows
        if (each.suite, each.cluster, each.case) == (row.suite, row.cluster, row.case)
        and each.run_id != row.run_id
        and each.at_s < row.at_s
    ]
    used: list[CaseRow] = []
    why: dict[str, list[str]] = {}
    for each in earlier:
        reason = _why_left_out(each, row, rule)
        if reason is None:
            used.append(each)
        else:
            why.setdefault(reason, []).append(each.night)
    used = used[-rule.history_max :]
    left_out = tuple(LeftOut(tuple(nights), reason) for reason, nights in why.items())
    if not used:
        return NightComparison(row, left_out=left_out)
    stated = rule.noise[row.case]
    merits = [each.merit for each in used]
    before = used[-1]
    return NightComparison(
        row,
        effect=night_effect(row.merit, merits, stated.cv, stated.weight),
        before=before,
        nights=tuple(each.night for each in used),
        left_out=left_out,
        changes=difference(subject_of(before), subject_of(row)),
        notes=_notes(before, row),
    )


def _why_left_out(night: CaseRow, tonight: CaseRow, rule: NightRule) -> str | None:
    if night.at_s < rule.since_s:
        return "before history_since"
    if night.outcome is not None and Outcome(night.outcome).stands_out:
        return f"{night.outcome} then, not accepted by history_since"
    found = difference(instrument_of(night), instrument_of(tonight))
    if not found:
        return None
    named = [f"{each.name} was {each.before}, is {each.after}" for each in found[:_NAMED_MAX]]
    more = len(found) - len(named)
    return "; ".join([*named, *([f"and {more} more"] if more else [])])


def _notes(before: CaseRow, row: CaseRow) -> tuple[str, ...]:
    commits = before.environment.get(COMMIT), row.environment.get(COMMIT)
    if None in commits or commits[0] == commits[1]:
        return ()
    return (f"{COMMIT} was {commits[0]}, is {commits[1]}",)
