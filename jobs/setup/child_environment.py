"""The environment of child processes: that of this process, without secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_SECRET: set[str] = set()


def withhold(variable: str) -> None:
    """Withhold this environment variable from all later child processes."""
    _SECRET.add(variable)


def child_environment() -> dict[str, str]:
    """The environment for a child process."""
    return {name: value for name, value in os.environ.items() if name not in _SECRET}


@contextmanager
def secrets_withheld() -> Iterator[None]:
    """Remove the withheld variables while a library starts a process with the environment."""
    kept = {name: os.environ.pop(name) for name in _SECRET if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)
