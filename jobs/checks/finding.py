"""Findings: the result of a check, what was expected, and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from metrics.common.errors import ConfigError, RedlineError


class Severity(str, Enum):
    """The severity of a finding; a problem prevents a run from starting."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        severity: how serious it is.
        check: subject of the check, for example `executors' clocks`.
        found: the result in a few words.
        expected, remedy: empty when nothing is wrong, or when `found` includes them.
    """

    severity: Severity
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
    """A finding without anything wrong."""
    return Finding(Severity.OK, check, found)


def warning(check: str, found: str, expected: str = "", remedy: str = "") -> Finding:
    """A finding that a reader of the run must know; a run can start."""
    return Finding(Severity.WARNING, check, found, expected, remedy)


def problem(check: str, found: str, expected: str = "", remedy: str = "") -> Finding:
    """A finding that prevents a run from starting."""
    return Finding(Severity.PROBLEM, check, found, expected, remedy)


def skipped(check: str, why: str) -> Finding:
    """A check that was not made, with the reason."""
    return Finding(Severity.SKIPPED, check, why)


def problems_of(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that prevent a run from starting."""
    return [each for each in findings if each.severity is Severity.PROBLEM]


def require_ready(findings: Iterable[Finding]) -> None:
    """Raise an error when a finding prevents a run from starting.

    Raises:
        ConfigError: there are problems; it has a line for each.
    """
    problems = problems_of(findings)
    if problems:
        raise ConfigError("\n".join(each.sentence for each in problems))


def checked(check: str, make: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of a check; a RedlineError that it raises becomes a problem."""
    try:
        return list(make())
    except RedlineError as error:
        return problems_from(check, error)


def problems_from(check: str, error: RedlineError) -> list[Finding]:
    """A problem for each line of an error; the lines include the remedy."""
    return [problem(check, line) for line in str(error).splitlines() if line.strip()]
