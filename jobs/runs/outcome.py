"""How runs end: the status and the exit code that summary.json and the tables have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jobs.console.events import Reporter, warn
from metrics.common.errors import (
    ConfigError,
    GuardStopError,
    NoConclusionError,
    RedlineError,
    RegressionError,
    TerminatedError,
)

INTERRUPTED_CODE = 130
NO_CONCLUSION = "no conclusion"


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended.

    Attributes:
        status: `done`, `regression`, `overloaded`, `no conclusion`, `stopped by a guard`,
            `interrupted`, `terminated` or `failed`.
        exit_code: what the command returns.
        error: the sentence that the user is shown, or None.
    """

    status: str = "done"
    exit_code: int = 0
    error: str | None = None

    def checked_exit_code(self) -> int:
        """The exit code.

        Raises:
            NoConclusionError, RegressionError: where there is a sentence to be shown with it.
        """
        kinds: tuple[type[RedlineError], ...] = (NoConclusionError, RegressionError)
        for kind in kinds:
            if self.error is not None and self.exit_code == kind.exit_code:
                raise kind(self.error)
        return self.exit_code


def finish(outcome: RunOutcome, reporter: Reporter, leave: Callable[[], object]) -> int:
    """Leave the files of a result and end as the result says; its exit code.

    A file that cannot be written is told, and hides no result but a good one.

    Raises:
        ConfigError: the result is good, and a file of it could not be written.
        NoConclusionError, RegressionError: as the outcome says.
    """
    try:
        leave()
    except ConfigError as error:
        if not outcome.exit_code:
            raise
        warn(reporter, str(error))
    return outcome.checked_exit_code()


def outcome_of(error: BaseException | None) -> RunOutcome:
    """How a run ended that raised this, or nothing."""
    if error is None:
        return RunOutcome()
    interrupt = _interrupt_in(error)
    if isinstance(interrupt, TerminatedError):
        return RunOutcome("terminated", interrupt.exit_code, "terminated")
    if interrupt is not None:
        return RunOutcome("interrupted", INTERRUPTED_CODE, "interrupted")
    code = getattr(error, "exit_code", 1)
    if isinstance(error, NoConclusionError):
        return RunOutcome(NO_CONCLUSION, code, str(error))
    status = "stopped by a guard" if isinstance(error, GuardStopError) else "failed"
    return RunOutcome(status, code, f"{error}" or type(error).__name__)


def _interrupt_in(error: BaseException) -> KeyboardInterrupt | None:
    """An interrupt, or the one that was on its way while this broke."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, KeyboardInterrupt):
            return at
        at = at.__cause__ or at.__context__
    return None
