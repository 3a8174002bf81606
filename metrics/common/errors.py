"""All exceptions for users, with the exit code of each kind of error.

The module is in a low package, so that every layer can raise these errors. `jobs.runs.lifecycle`
catches errors that end a run, and `jobs.entry` catches errors that end a command.
"""

from __future__ import annotations

ENDED_SPARK = (
    "Cannot call methods on a stopped SparkContext",
    "No active or default Spark session",
    "org.apache.spark.SparkEnv$.get()",
)
"""Texts in the messages of errors that Spark raises if its context is ending or has ended."""


class RedlineError(Exception):
    """Base class of all errors that are shown to the user as one sentence.

    The message contains the given value, the expected value and the remedy.
    """

    exit_code = 1


class ConfigError(RedlineError):
    """The user or the machine causes the error: wrong usage, a wrong configuration, or a missing
    prerequisite.
    """

    exit_code = 2


class NoConclusionError(RedlineError):
    """Raised if a run or another command ends without a valid conclusion."""

    exit_code = 3


class RegressionError(RedlineError):
    """Raised if the results of a night are worse than the results of earlier nights."""

    exit_code = 4


class HeadroomError(RedlineError):
    """Raised if a cluster has less headroom than the user requires."""

    exit_code = 4


class GuardStopError(RedlineError):
    """Raised if a guard stops a run to protect the cluster or the machine."""

    exit_code = 5


class TerminatedError(KeyboardInterrupt):
    """The end of the process by SIGTERM, for example from a scheduler, or by SIGHUP.

    The program cleans up as after Ctrl-C, but it ends with another exit code.
    """

    exit_code = 143


class TryLaterError(RedlineError):
    """Raised if a command fails because the cluster is in use or unavailable now; the command may
    succeed later.
    """

    exit_code = 75
