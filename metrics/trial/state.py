"""The state of the cluster in which trials are made, in words."""

from __future__ import annotations

ALL_BROKERS = "all brokers"
CATCHING_UP = "catching up"


def offline_state(count: int) -> str:
    """The state with a number of brokers offline: `1 broker offline`."""
    return f"{count} broker{'' if count == 1 else 's'} offline"


def place_of(state: str) -> int:
    """The position of a state in an answer: all brokers first, catching up last."""
    return {ALL_BROKERS: 0, CATCHING_UP: 2}.get(state, 1)
