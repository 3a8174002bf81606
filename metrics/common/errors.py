"""The one exception root, and the exit code that each kind of error stands for.

It lives in the lowest package so that every layer can raise below it. What reaches a command is
caught by `jobs.entry`, what ends a run before that by `jobs.runs.lifecycle`.
"""

from __future__ import annotations


class RedlineError(Exception):
    """Root of all errors that a user is shown as one sentence.

    The message says what was given, what was expected and what to do.
    """

    exit_code = 1


class ConfigError(RedlineError):
    """Bad usage or configuration, or a machine that lacks a prerequisite."""

    exit_code = 2


class NoConclusionError(RedlineError):
    """The run ended without a valid bracket."""

    exit_code = 3


class RegressionError(RedlineError):
    """A night is worse than those before it."""

    exit_code = 4


class GuardStopError(RedlineError):
    """A guard stopped the run to protect the cluster or the machine."""

    exit_code = 5


class TerminatedError(KeyboardInterrupt):
    """Somebody ended the process: SIGTERM, as a scheduler sends it, or SIGHUP.

    An interrupt like Ctrl-C to all who clean up behind one, with an exit code of its own.
    """

    exit_code = 143


class TryLaterError(RedlineError):
    """What was asked for cannot be done now, and may later: the cluster is in use or away."""

    exit_code = 75
