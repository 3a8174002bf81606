"""The answer of a night: nightly.json for programs, sentences for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metrics.columns import as_document
from metrics.comparing.cause import release_of
from metrics.comparing.effects import Effect
from metrics.features.nightly.judging import NightComparison, quantity_of
from metrics.reporting.files import json_text, write_atomic
from metrics.tables.rows import Outcome
from metrics.units import format_ratio

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class CaseReport:
    """The outcome of one case of a night.

    Attributes:
        case, kind, message_bytes: name, `limit` or `load`, and message size [B].
        outcome: the night's conclusion about the case.
        text: the outcome in a sentence.
        comparison: the comparison behind it, or None if the case has no valid figure.
    """

    case: str
    kind: str
    message_bytes: int
    outcome: Outcome
    text: str
    comparison: NightComparison | None = None


@dataclass(frozen=True)
class NightReport:
    """The answer of a night.

    Attributes:
        run_id, night, suite, cluster, workload, goal: names of the night and its configuration.
        started_at, finished_at: ISO 8601, UTC.
        status: `done`, `regression`, `no conclusion`, `stopped by a guard`, `interrupted` or
            `failed`.
        exit_code: exit code of the command.
        error: the error message that the user saw, or None.
        caveat: a restriction that readers of the figures must know, or empty.
        cases: all cases of the suite, in its order.
        environment: the environment of this night.
    """

    run_id: str
    night: str
    suite: str
    cluster: str
    workload: str
    goal: str
    started_at: str
    finished_at: str
    status: str
    exit_code: int
    cases: tuple[CaseReport, ...]
    error: str | None = None
    caveat: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def case_report(compared: NightComparison) -> CaseReport:
    """Report a case that was measured."""
    row, text = compared.tonight, comparison_text(compared)
    return CaseReport(row.case, row.kind, row.message_bytes, compared.outcome, text, compared)


def comparison_text(compared: NightComparison) -> str:
    """A comparison in a sentence: figure, change, interval and likely cause or upgrade."""
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
            change = f"slowly: {since}; {change}"
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
    """The differences from the night before, and the limiting resources then and now."""
    before, row = compared.before, compared.tonight
    changed = [f"{each.name} was {each.before}, is {each.after}" for each in compared.own_changes]
    if upgrade := _upgrade(compared):
        follow = len(compared.changes) - len(changed)
        found = [f"possible reasons: {', '.join([upgrade, *changed])}"]
        if follow:
            found.append(f"{follow} more facts differ as the releases do, see nightly.json")
    elif changed:
        found = [f"likely cause: {', '.join(changed)}"]
    else:
        found = ["no recorded property of the cluster differs"]
    then = (before.limited_by if before else None) or "not known"
    if row.limited_by:
        found.append(f"bound by {row.limited_by}, previously by {then}")
    return found


def _upgrade(compared: NightComparison) -> str:
    """The change of the release since the night before as a clause; empty without one."""
    if compared.upgrade is None:
        return ""
    before, now = compared.upgrade
    return f"the brokers were {before}, are {now}"


def night_document(report: NightReport) -> dict[str, Any]:
    """The content of nightly.json, as docs/nightly.md describes it."""
    found = {
        name: getattr(report, name)
        for name in report.__dataclass_fields__
        if name not in ("cases", "environment")
    }
    return {
        "schema_version": SCHEMA_VERSION,
        **found,
        "cases": [_case_document(each) for each in report.cases],
        "environment": dict(report.environment),
    }


_OF_ROW = ("np", "scale", "measure", "value", "values", "mb_per_s_per_broker", "handler_s_per_mb",
           "latency_p99_ms", "achieved_share", "verdicts", "trials", "duration_s", "limited_by",
           "evidence")  # fmt: skip
"""Columns of the table `cases` that nightly.json has of each case."""


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
    own = as_document(row)
    return {
        **head,
        **{name: own[name] for name in _OF_ROW},
        "unit": quantity_of(row).unit,
        "effect": None if compared.effect is None else _effect(compared.effect),
        "slow_loss": None if compared.slow_loss is None else as_document(compared.slow_loss),
        "nights": list(compared.nights),
        "left_out": [as_document(each) for each in compared.left_out],
        "changes": [as_document(each) for each in compared.changes],
        "notes": list(compared.notes),
        "limited_by_before": before.limited_by if before else None,
        "evidence_before": before.evidence if before else "",
        "release": release_of(row.environment).text,
        "release_before": release_of(before.environment).text if before else "",
    }


def _effect(effect: Effect) -> dict[str, float | int]:
    """An effect as relative changes: 0 is no change, -0.1 a loss of 10 %."""
    return {
        "change": effect.change,
        "low": effect.low - 1.0,
        "high": effect.high - 1.0,
        "p_value": effect.p_value,
        "smallest_visible": effect.smallest_visible,
        "nights": effect.count,
    }


def write_night(report: NightReport, path: Path) -> None:
    """Write nightly.json atomically."""
    write_atomic(path, json_text(night_document(report)))


def table_rows(cases: Sequence[CaseReport]) -> list[tuple[str, ...]]:
    """The rows of a table of the cases: case, figure, change, interval, nights, outcome."""
    rows: list[tuple[str, ...]] = []
    for each in cases:
        compared = each.comparison
        effect = compared.effect if compared else None
        unit = quantity_of(compared.tonight).unit if compared else ""
        rows.append(
            (
                each.case,
                f"{compared.tonight.value:.4g} {unit}".rstrip() if compared else "–",
                _signed(effect.change) if effect else "–",
                _interval(effect) if effect else "–",
                str(effect.count) if effect else "0",
                each.outcome.value,
            )
        )
    return rows
