"""What can go wrong with a testbed, and the exit code that each kind stands for."""

from __future__ import annotations

from metrics.common.errors import ConfigError, GuardStopError, RedlineError


class TestbedStartError(ConfigError):
    """The brokers did not become ready: a bad property, too slow a machine, no free port."""

    __test__ = False


class TestbedLostError(RedlineError):
    """A process of a running testbed ended without being asked to."""

    __test__ = False


class TestbedDiskError(GuardStopError):
    """The testbed was stopped before it filled the disk."""

    __test__ = False


class TestbedStateError(ConfigError):
    """A testbed was asked for what it cannot do in its present state."""

    __test__ = False


_BY_KIND: dict[str, type[RedlineError]] = {
    "start": TestbedStartError,
    "lost": TestbedLostError,
    "disk": TestbedDiskError,
}


def error_of_kind(kind: str, message: str) -> RedlineError:
    """The error for a failure that the supervisor reported by its kind."""
    return _BY_KIND.get(kind, RedlineError)(message)
