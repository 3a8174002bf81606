"""The root of all exceptions, and the exit code of each kind of error.

The module is in the lowest package so that every layer can raise its errors. `jobs.runs.lifecycle`
catches the errors that end a run, and `jobs.entry` those that end a command.
"""

from __future__ import annotations


class RedlineError(Exception):
    """Root of all errors that are shown to the user as one sentence.

    The message states the given value, the expected value and the remedy.
    """

    exit_code = 1


class ConfigError(RedlineError):
    """Wrong usage or configuration, or a machine without a prerequisite."""

    exit_code = 2


class NoConclusionError(RedlineError):
    """A run that ended without a valid bracket."""

    exit_code = 3


class RegressionError(RedlineError):
    """A night with worse results than those before it."""

    exit_code = 4


class HeadroomError(RedlineError):
    """A cluster with less headroom than the caller demands."""

    exit_code = 4


class GuardStopError(RedlineError):
    """A run that a guard stopped to protect the cluster or the machine."""

    exit_code = 5


class TerminatedError(KeyboardInterrupt):
    """The end of the process by SIGTERM, as a scheduler sends it, or by SIGHUP.

    Cleanup handles it like an interrupt by Ctrl-C; it has an exit code of its own.
    """

    exit_code = 143


class TryLaterError(RedlineError):
    """A request that may succeed later: the cluster is in use or unavailable now."""

    exit_code = 75
