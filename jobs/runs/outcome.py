"""The outcome of a run: its status and its exit code, which summary.json and the tables contain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jobs.console.events import Reporter, warn
from metrics.common.errors import (
    ConfigError,
    GuardStopError,
    NoConclusionError,
    RegressionError,
    TerminatedError,
)

INTERRUPTED_CODE = 130
NO_CONCLUSION = "no conclusion"


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run.

    Attributes:
        status: `done`, `regression`, `overloaded`, `no conclusion`, `stopped by a guard`,
            `interrupted`, `terminated` or `failed`.
        exit_code: the exit code of the command.
        error: the message to the user; None without a message.
    """

    status: str = "done"
    exit_code: int = 0
    error: str | None = None

    def checked_exit_code(self) -> int:
        """The exit code of an outcome that is not raised as an error.

        Raises:
            NoConclusionError: the run had no conclusion, and the outcome has a message.
            RegressionError: the run found a regression or an overload, and the outcome has a
                message.
        """
        for kind in (NoConclusionError, RegressionError):
            if self.error is not None and self.exit_code == kind.exit_code:
                raise kind(self.error)
        return self.exit_code


def finish(outcome: RunOutcome, reporter: Reporter, write_files: Callable[[], object]) -> int:
    """Write the files of a run, and return the exit code of its outcome.

    If a file cannot be written, a successful run fails; a run with another outcome gets a warning.

    Raises:
        ConfigError: the outcome is successful, but a file could not be written.
        NoConclusionError: the run had no conclusion, and the outcome has a message.
        RegressionError: the run found a regression or an overload, and the outcome has a message.
    """
    try:
        write_files()
    except ConfigError as error:
        if not outcome.exit_code:
            raise
        warn(reporter, str(error))
    return outcome.checked_exit_code()


def outcome_of(error: BaseException | None) -> RunOutcome:
    """The outcome of a run that ended with this error; None stands for the end without an error."""
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
    """The interrupt among an error and its causes; None if there is no interrupt."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, KeyboardInterrupt):
            return at
        at = at.__cause__ or at.__context__
    return None
