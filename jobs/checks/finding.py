"""What a check found: how it stands, what was expected and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from metrics.common.errors import ConfigError, RedlineError


class Severity(str, Enum):
    """How much a finding matters: a problem keeps a run from starting."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        check: what was looked at, for example `executors' clocks`.
        found: in a few words.
        expected, remedy: empty where all is well, or where `found` says them already.
    """

    standing: Severity
    check: str
    found: str
    expected: str = ""
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """What was found, expected and to be done."""
        expected = f"expected {self.expected}" if self.expected else ""
        return "; ".join(part for part in (self.found, expected, self.remedy) if part)


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding(Severity.OK, check, found)


def warning(check: str, found: str, expected: str = "", remedy: str = "") -> Finding:
    """A run can start, and its reader should know this."""
    return Finding(Severity.WARNING, check, found, expected, remedy)


def problem(check: str, found: str, expected: str = "", remedy: str = "") -> Finding:
    """No run can start."""
    return Finding(Severity.PROBLEM, check, found, expected, remedy)


def skipped(check: str, why: str) -> Finding:
    """Not looked at, and why."""
    return Finding(Severity.SKIPPED, check, why)


def problems_of(findings: Iterable[Finding]) -> list[Finding]:
    """Those that keep a run from starting."""
    return [each for each in findings if each.standing is Severity.PROBLEM]


def require_ready(findings: Iterable[Finding]) -> None:
    """Refuse to go on when something keeps a run from starting.

    Raises:
        ConfigError: with a line for each problem.
    """
    problems = problems_of(findings)
    if problems:
        raise ConfigError("\n".join(each.sentence for each in problems))


def checked(check: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """What a look finds; an error that has a sentence for the user is a problem."""
    try:
        return list(look())
    except RedlineError as error:
        return problems_from(check, error)


def problems_from(check: str, error: RedlineError) -> list[Finding]:
    """An error as a problem for each of its lines, which say what to do themselves."""
    return [problem(check, line) for line in str(error).splitlines() if line.strip()]
