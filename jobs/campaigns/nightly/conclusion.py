"""The conclusion of a night: its case reports, its outcome, and its judged rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from jobs.campaigns.nightly.settings import default_settings
from jobs.config.suite import Suite
from jobs.runs.outcome import RunOutcome, outcome_of
from metrics.common.errors import NoConclusionError, RegressionError
from metrics.comparing.nightly import NightComparison, NightRule
from metrics.reporting.nightly import CaseReport, case_report
from metrics.tables.cases import CaseRow, Outcome

Missing = Mapping[str, tuple[Outcome, str]]
"""The cases without a valid figure, each with its outcome and the reason."""


def rule_of(suite: Suite) -> NightRule:
    """The rule by which a suite's nights are judged."""
    return NightRule(
        {case.name: suite.noise_of(case) for case in suite.cases},
        suite.min_effect,
        suite.history_max,
        suite.since_s,
        default_settings(),
    )


def case_reports(
    suite: Suite,
    comparisons: Sequence[NightComparison],
    missing: Missing,
    error: BaseException | None,
    mean_bytes: int = 0,
) -> tuple[CaseReport, ...]:
    """The reports of all cases of a suite in order, also of those that were not measured.

    Args:
        error: the error that ended the night, or None.
        mean_bytes: mean size of a mix's messages, for cases without a size [B].
    """
    compared = {each.tonight.case: case_report(each) for each in comparisons}
    why = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error or "")
    ended = (Outcome.NOT_MEASURED, f"the night ended before this case: {why}".rstrip(": "))
    found = []
    for case in suite.cases:
        if case.name in compared:
            found.append(compared[case.name])
            continue
        outcome, text = missing.get(case.name, ended)
        found.append(CaseReport(case.name, case.kind, case.size or mean_bytes, outcome, text))
    return tuple(found)


def outcome_of_night(cases: Sequence[CaseReport], error: BaseException | None) -> RunOutcome:
    """The outcome of a night, by its error or by its cases."""
    if error is not None:
        return outcome_of(error)
    worse = [f"{each.case}: {each.text}" for each in cases if each.outcome is Outcome.REGRESSION]
    if worse:
        text = f"regression found: {'; '.join(worse)}"
        return RunOutcome("regression", RegressionError.exit_code, text)
    if not any(each.comparison for each in cases):
        reasons = "; ".join(f"{each.case}: {each.outcome.value}: {each.text}" for each in cases)
        return outcome_of(NoConclusionError(f"no case came to a conclusion: {reasons}"))
    return RunOutcome()


def judged_row(compared: NightComparison) -> CaseRow:
    """The row of a judged case."""
    row = replace(
        compared.tonight,
        event="judged",
        outcome=compared.outcome.value,
        nights=compared.nights,
        text=case_report(compared).text,
    )
    effect = compared.effect
    if effect is None:
        return row
    return replace(
        row,
        change=effect.change,
        change_low=effect.low - 1.0,
        change_high=effect.high - 1.0,
        p_value=effect.p_value,
        smallest_visible=effect.smallest_visible,
    )
