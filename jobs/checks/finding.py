"""Findings: each finding has the result of a check, the expectation and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from metrics.columns import Column
from metrics.common.errors import ConfigError, RedlineError


class Severity(str, Enum):
    """The severity of a finding. Only a problem prevents a run from starting."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        severity: how serious the finding is.
        check: subject of the check, for example `executors' clocks`.
        found: the result in a few words.
        expected, remedy: what the check expects, and what the user can do. The expectation and the
            remedy are empty if nothing is wrong, or if `found` includes them.
    """

    severity: Annotated[Severity, Column("result")]
    check: str
    found: str
    expected: str = ""
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """The result, the expectation and the remedy as one sentence."""
        expected = f"expected {self.expected}" if self.expected else ""
        return "; ".join(part for part in (self.found, expected, self.remedy) if part)


def ok(check: str, found: str) -> Finding:
    """The finding of a check that passed."""
    return Finding(Severity.OK, check, found)


def warning(check: str, found: str, expected: str = "", remedy: str = "") -> Finding:
    """A finding that does not prevent a run, but makes the results of the run less reliable."""
    return Finding(Severity.WARNING, check, found, expected, remedy)


def problem(check: str, found: str, expected: str = "", remedy: str = "") -> Finding:
    """The finding of a check that failed; a run cannot start."""
    return Finding(Severity.PROBLEM, check, found, expected, remedy)


def skipped(check: str, why: str) -> Finding:
    """The finding of a check that was skipped, with the reason."""
    return Finding(Severity.SKIPPED, check, why)


def problems_of(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that prevent a run from starting."""
    return [each for each in findings if each.severity is Severity.PROBLEM]


def require_ready(findings: Iterable[Finding]) -> None:
    """Raise an error if a finding prevents a run from starting.

    Raises:
        ConfigError: at least one finding is a problem. The message has one line for each problem.
    """
    problems = problems_of(findings)
    if problems:
        raise ConfigError("\n".join(each.sentence for each in problems))


def checked(check: str, make: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of a check. A RedlineError that the check raises becomes a problem."""
    try:
        return list(make())
    except RedlineError as error:
        return problems_from(check, error)


def problems_from(check: str, error: RedlineError) -> list[Finding]:
    """One problem for each line of an error's message. Each line includes its remedy."""
    return [problem(check, line) for line in str(error).splitlines() if line.strip()]
