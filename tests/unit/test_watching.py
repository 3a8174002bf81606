"""The polling thread that lasts as long as a block."""

from __future__ import annotations

import threading

import pytest

from jobs.trials.watching import watching
from tests.support.processes import PATIENCE_S


def test_calls_repeat_until_the_block_ends() -> None:
    third, looks = threading.Event(), []

    def look() -> float:
        looks.append(1)
        if len(looks) == 3:
            third.set()
        return 0.0

    with watching("test", look):
        assert third.wait(PATIENCE_S)
    seen = len(looks)
    assert not any(thread.name == "redline-test" for thread in threading.enumerate())
    assert len(looks) == seen


def test_none_ends_the_calls() -> None:
    looked, looks = threading.Event(), []

    def look() -> None:
        looks.append(1)
        looked.set()

    with watching("test", look):
        assert looked.wait(PATIENCE_S)
    assert looks == [1]


def test_the_error_of_a_call_leaves_the_block() -> None:
    failed = threading.Event()

    def look() -> None:
        failed.set()
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"), watching("test", look):
        assert failed.wait(PATIENCE_S)


def test_an_error_of_the_block_precedes_that_of_a_call() -> None:
    failed = threading.Event()

    def look() -> None:
        failed.set()
        raise KeyError("lost")

    def block() -> None:
        with watching("test", look):
            assert failed.wait(PATIENCE_S)
            raise ValueError("the block's")

    with pytest.raises(ValueError, match="the block's"):
        block()
