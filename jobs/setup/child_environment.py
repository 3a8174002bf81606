"""The environment of the processes that we start: ours, without its secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_SECRET: set[str] = set()


def withhold(variable: str) -> None:
    """From now on no process that we start gets this variable of the environment."""
    _SECRET.add(variable)


def child_environment() -> dict[str, str]:
    """What a process gets that we start."""
    return {name: value for name, value in os.environ.items() if name not in _SECRET}


@contextmanager
def secrets_withheld() -> Iterator[None]:
    """The same for a library that starts a process and hands it our environment as it is."""
    kept = {name: os.environ.pop(name) for name in _SECRET if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)
