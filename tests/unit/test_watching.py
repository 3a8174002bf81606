"""The polling thread that lasts as long as a block."""

from __future__ import annotations

import threading

import pytest

from jobs.trials.watching import watching
from tests.support.processes import PATIENCE_S


def test_calls_repeat_until_one_returns_none_or_the_block_ends() -> None:
    third, looks = threading.Event(), 0

    def look() -> float | None:
        nonlocal looks
        looks += 1
        if looks == 3:
            third.set()
        return None if last == looks else 0.0

    for last in (3, 0):
        looks = 0
        third.clear()
        with watching("test", look):
            assert third.wait(PATIENCE_S)
        assert looks == 3 if last else looks >= 3
        assert not any(thread.name == "redline-test" for thread in threading.enumerate())


def test_the_error_of_a_call_leaves_the_block_unless_the_block_has_one() -> None:
    failed = threading.Event()

    def look() -> None:
        failed.set()
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"), watching("test", look):
        assert failed.wait(PATIENCE_S)
    failed.clear()

    def block() -> None:
        with watching("test", look):
            assert failed.wait(PATIENCE_S)
            raise ValueError("the block's")

    with pytest.raises(ValueError, match="the block's"):
        block()
