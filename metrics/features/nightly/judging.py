"""The comparison of a night with earlier nights. All functions are pure.

Each case has one positive figure per night. If a lower figure is better, the reciprocal of the
figure is compared. The effect of a night is the ratio of its figure to the geometric mean of the
earlier nights, with Student's t prediction interval for one more night (`effects.night_effect`).
`effects.conclude` draws the conclusion, as in a comparison of two sides. A first night has no
conclusion. `effects.slow_loss` finds a loss that is too small in each single night but adds up
since the first nights.

A night is compared only with nights that were measured with equal releases of redline, Python,
Spark and packages, and on an equal driver. Other nights are left out, and the answer lists them.
Nights with a regression or an improvement count for the spread (`effects.night_spread`) and for a
slow loss. Nights with a regression or an improvement do not count for the mean: a loss would lower
the mean of the following nights, so that these nights would show no loss.

The answer of a night has two forms: nightly.json for programs, and sentences for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from metrics.columns import as_document
from metrics.common.bounds import Number
from metrics.comparing.cause import VERSIONS, changed_release, release_of
from metrics.comparing.effects import (
    BETWEEN_NIGHTS_SD,
    CAPACITY,
    NIGHT_ALPHA,
    REFERENCE_NIGHTS,
    Conclusion,
    Effect,
    Quantity,
    conclude,
    night_effect,
    night_spread,
    slow_loss,
)
from metrics.tables.rows import ABSENT, CaseRow, Difference, Outcome, difference
from metrics.units import format_ratio

INSTRUMENT = ("redline.", "driver.", "python.", "spark.", "package.")
"""Prefixes of the names of facts about the instrument, which is the measuring software and its
machine. Facts with other prefixes describe the measured cluster.
"""
COMMIT = "redline.commit"
"""Name of the fact with redline's commit. Nights with different commits are compared with each
other, because most commits affect no result. Nights with different values of `redline.version` are
not compared.
"""
_GIB = 2**30
_NAMED_MAX = 3
QUANTITIES: Mapping[str, Quantity] = {
    "limit": Quantity("mb_per_s_per_broker", "limit per broker", "MB/s", CAPACITY.read),
    "handlers": Quantity(
        "handler_s_per_mb",
        "handlers' time per MB",
        "s/MB",
        lambda trial: trial.evidence.handler_s_per_mb,
        less_is_better=True,
    ),
    "latency_p99": Quantity(
        "latency_p99_ms",
        "latency p99",
        "ms",
        lambda trial: trial.evidence.client.latency.p99_ms,
        less_is_better=True,
    ),
    "achieved": Quantity(
        "achieved_share",
        "achieved over offered",
        "",
        lambda trial: trial.evidence.client.achieved_share,
    ),
}
"""Name in a suite → the quantity that nights compare. The attribute `name` of a quantity is its
column in the table `cases`.
"""
_BY_COLUMN = {each.name: each for each in QUANTITIES.values()}
_OUTCOMES = {
    Conclusion.REGRESSION: Outcome.REGRESSION,
    Conclusion.IMPROVEMENT: Outcome.IMPROVEMENT,
    Conclusion.NO_ANSWER: Outcome.NO_HISTORY,
}
"""Conclusion → outcome. A conclusion that is not in the map has the outcome `no change`."""


@dataclass(frozen=True)
class Noise:
    """The assumed noise between nights under equal conditions.

    Attributes:
        cv: standard deviation from night to night, divided by the mean [ratio].
        weight: number of nights whose measured spread would have the same weight as the assumed
            noise [nights].
    """

    cv: Annotated[float, Number(0, 2, above=True)] = BETWEEN_NIGHTS_SD
    weight: Annotated[float, Number(1, 1_000, "nights")] = 8.0


@dataclass(frozen=True)
class NightRule:
    """The rules of a comparison of nights.

    Attributes:
        noise: case → the assumed noise of the case.
        min_effect: the smallest relevant change [share].
        history_max: maximum number of earlier nights from which the mean and the spread are
            computed; the newest nights are used.
        since_s: nights before this time are ignored [s since the epoch].
        defaults: setting → its default, as text. A night of an older version lacks settings that
            were added later; these settings count with their defaults.
        accepted: case → the table row of its newest accepted night. Only the accepted night and
            later nights count.
    """

    noise: Mapping[str, Noise]
    min_effect: float
    history_max: int
    since_s: float = 0.0
    defaults: Mapping[str, str] = field(default_factory=dict)
    accepted: Mapping[str, CaseRow] = field(default_factory=dict)


@dataclass(frozen=True)
class LeftOut:
    """Nights that were left out of a comparison for the same reason."""

    nights: tuple[str, ...]
    why: str

    @property
    def text(self) -> str:
        """A sentence such as `3 nights left out: driver.cores was 4, is 2`."""
        count = len(self.nights)
        return f"{count} night{'' if count == 1 else 's'} left out: {self.why}"


@dataclass(frozen=True)
class SlowLoss:
    """A loss that is too small in each single night but adds up over several nights.

    Attributes:
        loss: mean loss of the newest nights compared with the first nights [share].
        since: name of the first night with the loss.
    """

    loss: float
    since: str


@dataclass(frozen=True)
class NightComparison:
    """The comparison of one case of tonight with its history.

    Attributes:
        tonight: tonight's measurement.
        effect: tonight's value divided by the mean value of the earlier nights; None without
            history. The value is the figure if a higher figure is better, and otherwise the
            reciprocal of the figure.
        before: the newest earlier night with which tonight is compared; None without history.
        nights: the names of the earlier nights with which tonight is compared, oldest first.
        left_out: the earlier nights with which tonight is not compared, grouped by reason.
        slow_loss: a loss that is too small in each single night but has added up; None without such
            a loss.
        changes: differences between the brokers of the night `before` and the brokers of tonight.
        notes: further remarks, one sentence each.
    """

    tonight: CaseRow
    outcome: Outcome = Outcome.NO_HISTORY
    effect: Effect | None = None
    before: CaseRow | None = None
    nights: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    changes: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)
    slow_loss: SlowLoss | None = None

    @property
    def upgrade(self) -> tuple[str, str] | None:
        """Kafka's release in the night `before` and Kafka's release tonight; None if both are
        equal.

        Two releases also differ if one cluster uses ZooKeeper and the other one uses KRaft.
        """
        if self.before is None:
            return None
        return changed_release(
            release_of(self.before.environment), release_of(self.tonight.environment)
        )

    @property
    def own_changes(self) -> tuple[Difference, ...]:
        """The changes that an upgrade of Kafka does not explain; all changes if there is no
        upgrade.

        An upgrade explains new versions. An upgrade also explains a fact or a property that exists
        only before the upgrade, or only after the upgrade.
        """
        if self.upgrade is None:
            return self.changes
        return tuple(
            each
            for each in self.changes
            if ABSENT not in (each.before, each.after) and not VERSIONS.match(each.name)
        )


def is_instrument(name: str) -> bool:
    """Whether a fact with this name describes the instrument."""
    return name.startswith(INSTRUMENT)


def instrument_of(row: CaseRow) -> dict[str, str]:
    """The facts about the instrument of a night, and the settings of its trials."""
    own = {
        name: _coarse(name, value)
        for name, value in row.environment.items()
        if is_instrument(name) and name != COMMIT
    }
    return {**own, **row.settings}


def _coarse(name: str, value: str) -> str:
    """The value of a fact, rounded for the comparison. Only the driver's memory is rounded, to GiB.

    Equal machines differ slightly in memory, because their kernels reserve different amounts.
    """
    if name == "driver.memory_bytes" and value.isdigit():
        return f"{round(int(value) / _GIB)} GiB"
    return value


def subject_of(row: CaseRow) -> dict[str, str]:
    """The facts about the measured cluster: brokers, controllers, their properties, and the
    properties of the topic.
    """
    return {name: value for name, value in row.environment.items() if not is_instrument(name)}


def judge_night(
    tonight: Sequence[CaseRow], history: Iterable[CaseRow], rule: NightRule
) -> tuple[NightComparison, ...]:
    """Compare each case of a night with its history. The order of the cases stays the same.

    Args:
        history: rows of earlier nights, of any cases, with one row for each case of a night.
    """
    rows = sorted(history, key=lambda row: (row.at_s, row.run_id))
    compared = [_compared(row, rows, rule, len(tonight)) for row in tonight]
    conclusions = conclude([each.effect for each in compared], rule.min_effect, NIGHT_ALPHA)
    return tuple(
        _concluded(each, conclusion) for each, conclusion in zip(compared, conclusions, strict=True)
    )


def _concluded(compared: NightComparison, conclusion: Conclusion) -> NightComparison:
    """The comparison with its outcome. A slow loss counts only if tonight alone shows no change."""
    outcome = _OUTCOMES.get(conclusion, Outcome.NO_CHANGE)
    if outcome.stands_out or compared.slow_loss is None:
        return replace(compared, outcome=outcome, slow_loss=None)
    return replace(compared, outcome=Outcome.REGRESSION)


def _compared(
    row: CaseRow, rows: Sequence[CaseRow], rule: NightRule, cases: int
) -> NightComparison:
    earlier = [
        each
        for each in rows
        if (each.suite, each.cluster, each.case) == (row.suite, row.cluster, row.case)
        and each.run_id != row.run_id
        and each.at_s < row.at_s
    ]
    comparable: list[CaseRow] = []
    usual: list[CaseRow] = []
    why: dict[str, list[str]] = {}
    for each in earlier:
        reason = _why_left_out(each, row, rule)
        if reason is None:
            comparable.append(each)
            reason = _why_unusual(each, rule)
        if reason is None:
            usual.append(each)
        else:
            why.setdefault(reason, []).append(each.night)
    used = usual[-rule.history_max :]
    left_out = tuple(LeftOut(tuple(nights), reason) for reason, nights in why.items())
    if not used:
        return NightComparison(row, left_out=left_out)
    merits = list(map(merit_of, (*comparable, row)))
    are_usual = [_why_unusual(each, rule) is None for each in comparable]
    effect, slow = compare_merits(merits, are_usual, rule.noise[row.case], rule, cases)
    before = used[-1]
    return NightComparison(
        row,
        effect=effect,
        slow_loss=slow and SlowLoss(slow[0], (*comparable, row)[slow[1]].night),
        before=before,
        nights=tuple(each.night for each in used),
        left_out=left_out,
        changes=difference(subject_of(before), subject_of(row)),
        notes=_notes(before, row),
    )


def quantity_of(row: CaseRow) -> Quantity:
    """The quantity that the value of a row measures."""
    return _BY_COLUMN[row.measure]


def merit_of(row: CaseRow) -> float:
    """The value of a row, or its reciprocal if a lower value is better."""
    return 1.0 / row.value if quantity_of(row).less_is_better else row.value


def compare_merits(
    merits: Sequence[float], are_usual: Sequence[bool], noise: Noise, rule: NightRule, cases: int
) -> tuple[Effect | None, tuple[float, int] | None]:
    """Two values: the effect of tonight, and the slow loss as (mean loss [share], index in `merits`
    of the first night with the loss). The effect is None if there is no history; the slow loss is
    None if no slow loss was found.

    Args:
        merits: values of one case in all comparable nights, oldest first and tonight last. Each
            value is above zero, and a higher value is better.
        are_usual: for each earlier night, False if its outcome was a regression or an improvement.
        cases: number of cases that the night compares.
    """
    *nights, tonight = merits
    usual = [index for index, is_usual in enumerate(are_usual) if is_usual]
    spread = night_spread(nights[-rule.history_max :], noise.cv, noise.weight)
    effect = night_effect(tonight, [nights[i] for i in usual[-rule.history_max :]], spread)
    reference = usual[:REFERENCE_NIGHTS]
    if len(reference) < REFERENCE_NIGHTS:
        return effect, None
    first = reference[-1] + 1
    slow = slow_loss(
        [nights[i] for i in reference], merits[first:], spread.sd, rule.min_effect, cases
    )
    return effect, slow and (slow[0], first + slow[1])


def _why_left_out(night: CaseRow, tonight: CaseRow, rule: NightRule) -> str | None:
    if night.at_s < rule.since_s:
        return "before history_since"
    accepted = rule.accepted.get(night.case)
    if accepted is not None and night.run_id != accepted.run_id and night.at_s < accepted.at_s:
        return f"before the night {accepted.night}, which was accepted"
    found = [
        each
        for each in difference(instrument_of(night), instrument_of(tonight))
        if not (each.before == ABSENT and rule.defaults.get(each.name) == each.after)
    ]
    if not found:
        return None
    named = [f"{each.name} was {each.before}, is {each.after}" for each in found[:_NAMED_MAX]]
    more = len(found) - len(named)
    return "; ".join([*named, *([f"and {more} more"] if more else [])])


def _why_unusual(night: CaseRow, rule: NightRule) -> str | None:
    accepted = rule.accepted.get(night.case)
    if night.outcome is None or not Outcome(night.outcome).stands_out:
        return None
    if accepted is not None and night.run_id == accepted.run_id:
        return None
    return (
        f"the outcome was {night.outcome}, and neither --accept nor history_since accepts the night"
    )


def _notes(before: CaseRow, row: CaseRow) -> tuple[str, ...]:
    commits = before.environment.get(COMMIT), row.environment.get(COMMIT)
    if None in commits or commits[0] == commits[1]:
        return ()
    return (f"{COMMIT} was {commits[0]}, is {commits[1]}",)


SCHEMA_VERSION = 1


@dataclass(frozen=True)
class CaseReport:
    """The outcome of one case of a night.

    Attributes:
        case, kind, message_bytes: the case's name, its kind (`limit` or `load`), and its message
            size [B].
        outcome: the conclusion about the case.
        text: the outcome in a sentence.
        comparison: the comparison with earlier nights; None if the case has no valid figure.
    """

    case: str
    kind: str
    message_bytes: int
    outcome: Outcome
    text: str
    comparison: NightComparison | None = None


def case_report(compared: NightComparison) -> CaseReport:
    """The report of a case that was measured."""
    row, text = compared.tonight, comparison_text(compared)
    return CaseReport(row.case, row.kind, row.message_bytes, compared.outcome, text, compared)


def comparison_text(compared: NightComparison) -> str:
    """The comparison as a sentence: the figure, its change, the interval of the change, and the
    likely cause or the upgrade.
    """
    row, effect = compared.tonight, compared.effect
    compares = quantity_of(row)
    figure = f"{compares.title} {row.value:.4g} {compares.unit}".rstrip()
    if effect is None:
        which = "comparable night" if compared.left_out else "night"
        sentences = [f"{figure}: this is the first {which}, so there is no comparison"]
    else:
        nights = f"{effect.count} night{'' if effect.count == 1 else 's'}"
        least = f"the smallest detectable loss is {format_ratio(effect.smallest_visible)}"
        change = f"{_signed(effect.change)} ({_interval(effect)}) against {nights}"
        if slow := compared.slow_loss:
            since = f"{format_ratio(slow.loss)} since the night of {slow.since}"
            change = f"slow loss over many nights: {since}; {change}"
        sentences = [f"{figure}: {compared.outcome.value}, {change}; {least}"]
    if compared.outcome is Outcome.REGRESSION:
        sentences += _cause(compared)
    elif upgrade := _upgrade(compared):
        sentences.append(upgrade)
    sentences += [each.text for each in compared.left_out]
    return "; ".join([*sentences, *compared.notes])


def _signed(change: float) -> str:
    return f"{'+' if change >= 0 else '-'}{format_ratio(abs(change))}"


def _interval(effect: Effect) -> str:
    return f"{_signed(effect.low - 1)} to {_signed(effect.high - 1)}"


def _cause(compared: NightComparison) -> list[str]:
    """Clauses on the likely cause of a change: the changes of the brokers since the earlier night,
    and the limiting resource of each of the two nights.
    """
    before, row = compared.before, compared.tonight
    changed = [f"{each.name} was {each.before}, is {each.after}" for each in compared.own_changes]
    if upgrade := _upgrade(compared):
        follow = len(compared.changes) - len(changed)
        found = [f"possible reasons: {', '.join([upgrade, *changed])}"]
        if follow:
            found.append(f"{follow} more facts differ because of the upgrade, see nightly.json")
    elif changed:
        found = [f"likely cause: {', '.join(changed)}"]
    else:
        found = ["no recorded property of the cluster differs"]
    then = (before.limited_by if before else None) or "not known"
    if row.limited_by:
        found.append(f"limited by {row.limited_by}, previously by {then}")
    return found


def _upgrade(compared: NightComparison) -> str:
    """The change of Kafka's release since the night `compared.before`; empty without an upgrade."""
    if compared.upgrade is None:
        return ""
    before, now = compared.upgrade
    return f"the brokers were {before}, are {now}"


def night_document(
    head: Mapping[str, Any], cases: Sequence[CaseReport], environment: Mapping[str, str]
) -> dict[str, Any]:
    """The content of nightly.json, as docs/nightly.md describes it.

    Args:
        head: the names of the night and its configuration, the start and end times, and the status.
        cases: all cases, in the order of the suite.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        **head,
        "cases": [_case_document(each) for each in cases],
        "environment": dict(environment),
    }


_ROW_COLUMNS = (
    "np", "scale", "measure", "value", "values", "mb_per_s_per_broker", "handler_s_per_mb",
    "latency_p99_ms", "achieved_share", "verdicts", "trials", "duration_s", "limited_by",
    "evidence",
)  # fmt: skip
"""Columns of the table `cases` that nightly.json contains for each case."""
_COMPARISON_KEYS = ("slow_loss", "nights", "left_out", "changes", "notes")
"""Attributes of a comparison that nightly.json contains for each case."""


def _case_document(case: CaseReport) -> dict[str, Any]:
    head = {
        "case": case.case,
        "kind": case.kind,
        "bpm": case.message_bytes,
        "outcome": case.outcome.value,
        "text": case.text,
    }
    compared = case.comparison
    if compared is None:
        return head
    row, before = compared.tonight, compared.before
    whole = as_document(compared)
    return {
        **head,
        **{name: whole["tonight"][name] for name in _ROW_COLUMNS},
        "unit": quantity_of(row).unit,
        "effect": None if compared.effect is None else _effect(compared.effect),
        **{name: whole[name] for name in _COMPARISON_KEYS},
        "limited_by_before": before.limited_by if before else None,
        "evidence_before": before.evidence if before else "",
        "release": release_of(row.environment).text,
        "release_before": release_of(before.environment).text if before else "",
    }


def _effect(effect: Effect) -> dict[str, float | int]:
    """The effect with relative changes instead of ratios: 0 means no change, and -0.1 means a loss
    of 10 %.
    """
    return {
        "change": effect.change,
        "low": effect.low - 1.0,
        "high": effect.high - 1.0,
        "p_value": effect.p_value,
        "smallest_visible": effect.smallest_visible,
        "nights": effect.count,
    }


def table_rows(cases: Sequence[CaseReport]) -> list[tuple[str, ...]]:
    """The table rows, one for each case: the case, its figure, the change, the interval of the
    change, the number of nights, and the outcome.
    """
    return [(each.case, *_cells(each.comparison), each.outcome.value) for each in cases]


def _cells(compared: NightComparison | None) -> tuple[str, str, str, str]:
    if compared is None:
        return "–", "–", "–", "0"
    row, effect = compared.tonight, compared.effect
    figure = f"{row.value:.4g} {quantity_of(row).unit}".rstrip()
    if effect is None:
        return figure, "–", "–", "0"
    return figure, _signed(effect.change), _interval(effect), str(effect.count)
