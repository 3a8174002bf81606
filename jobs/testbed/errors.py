"""The errors of a testbed, each with the exit code of its base class."""

from __future__ import annotations

from metrics.common.errors import ConfigError, GuardStopError, RedlineError


class TestbedStartError(ConfigError):
    """The brokers did not become ready: a bad property, too slow a machine, no free port."""

    __test__ = False


class TestbedLostError(RedlineError):
    """A process of a running testbed ended unexpectedly."""

    __test__ = False


class TestbedDiskError(GuardStopError):
    """The testbed was stopped before it filled the disk."""

    __test__ = False


class TestbedStateError(ConfigError):
    """The testbed does not support this action in its present state."""

    __test__ = False


_BY_KIND: dict[str, type[RedlineError]] = {
    "start": TestbedStartError,
    "lost": TestbedLostError,
    "disk": TestbedDiskError,
}


def error_of_kind(kind: str, message: str) -> RedlineError:
    """The error for the kind of failure that the supervisor reported."""
    return _BY_KIND.get(kind, RedlineError)(message)
