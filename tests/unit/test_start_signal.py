"""The start of a load: all tasks get the signal at once, when the last of them is ready."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import cast

import pytest

from jobs.engine.task.control_channel import (
    LATE_MAX_S,
    PROBLEM_LENGTH,
    DriverChannel,
    OrphanedError,
    StartSignal,
    TaskReady,
    start_signals,
)
from jobs.trials.control_server import ControlServer, TaskChannel
from tests.support.patterns import plan
from tests.support.processes import PATIENCE_S


@pytest.fixture
def server() -> Iterator[ControlServer]:
    with ControlServer("127.0.0.1", "127.0.0.1") as server:
        yield server


def call(channel: TaskChannel, task: int) -> DriverChannel:
    return DriverChannel.connect(channel.address, task, PATIENCE_S, time.monotonic)


def test_the_last_ready_task_sets_the_start_and_one_task_of_each_host_watches_it() -> None:
    ready = {2: TaskReady(7.0, "a"), 0: TaskReady(5.0, "a"), 1: TaskReady(6.0, "b")}
    assert start_signals(ready) == {
        0: StartSignal(7.0, None, watches_host=True),
        1: StartSignal(7.0, None, watches_host=True),
        2: StartSignal(7.0),
    }
    for received_s, start_s in ((6.5, 7.0), (7.8, 7.8), (3_600.0, 12.0)):  # another clock
        assert {each.ready_s for each in start_signals(ready, received_s).values()} == {start_s}
    ready = {0: TaskReady(5.0, "a"), 1: TaskReady(6.0, "a", "no broker answers")}
    problems = [each.problem for _, each in sorted(start_signals(ready).items())]
    assert problems == ["another task: no broker answers", "no broker answers"], "all are stopped"
    long = TaskReady(5.5, "a", "x" * 10_000).document()
    assert TaskReady.parse(long).problem == "x" * PROBLEM_LENGTH


def test_tasks_wait_until_all_tasks_have_reported_to_the_driver(server: ControlServer) -> None:
    with server.channel(1, consumer_tasks=1) as channel, ThreadPoolExecutor(1) as pool:
        first, last = call(channel, 0), call(channel, 1)
        waiting: Future[StartSignal] = pool.submit(first.await_start, TaskReady(5.0, "a"))
        last.compare_clocks()  # the driver answers, and has sent no start
        assert not waiting.done()
        reported_s = time.time()
        ready = TaskReady(reported_s - 0.001, "b")
        agreed = last.await_start(ready)
        assert agreed == StartSignal(agreed.ready_s, None, watches_host=True)
        assert reported_s <= agreed.ready_s <= ready.now_s + LATE_MAX_S, (
            "not before the driver knew"
        )
        assert waiting.result(PATIENCE_S) == agreed
        for each in (first, last):
            each.finish()
            each.close()


DISCONNECTED = "the driver has ended|the control channel to the driver broke"


def test_a_task_that_is_lost_before_the_start_ends_the_wait_of_the_others(
    server: ControlServer,
) -> None:
    with server.channel(2) as channel, ThreadPoolExecutor(1) as pool:
        first, lost = call(channel, 0), call(channel, 1)
        waiting = pool.submit(first.await_start, TaskReady(5.0, "a"))
        lost.close()
        # The driver disconnects; with an unread message, that is a reset.
        with pytest.raises(OrphanedError, match=DISCONNECTED):
            waiting.result(PATIENCE_S)
        assert str(channel.failure).startswith("task 1 on 127.0.0.1 was lost")
        first.close()


def test_a_task_waits_for_the_start_as_long_as_the_driver_is_there() -> None:
    near, far = socket.socketpair()
    now_s = 0.0

    def clock() -> float:  # the driver sends something every 5 s, and the signal after 200 s
        nonlocal now_s
        now_s += 5.0
        agreed = json.dumps({"agreed": {"ready_s": 5.0}}).encode()
        far.sendall((agreed if now_s == 200.0 else b"") + b"\n")
        return now_s

    with near, far:
        signal = DriverChannel(near, clock).await_start(TaskReady(5.0, "a"))
    assert signal == StartSignal(5.0)


class Line:
    """The driver's end of the connection to a task."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.signals: list[StartSignal] = []

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        return self.host, 50_000

    def write(self, text: bytes) -> None:
        agreed = json.loads(text or "{}").get("agreed") if text.strip() else None
        self.signals += [StartSignal(**agreed)] if agreed else []


def test_tasks_that_open_too_long_are_named_to_those_that_wait() -> None:
    channel = TaskChannel("driver", 1, 2, lambda work: work(), consumer_tasks=1)
    channel.open_timeout_s = plan(connect_timeout_s=20.0).open_timeout_s
    first, slow = Line("10.0.0.1"), Line("10.0.0.2")
    ready = TaskReady(5.0, "a").document()
    for task, line in enumerate((first, slow)):
        assert channel.admit(task, cast("asyncio.StreamWriter", line))
    for _ in range(1_000):
        channel.beat()  # nobody is ready yet
    channel.receive(0, {"ready": ready})
    for _ in range(200 + 3 * 20):  # of connections at a slow broker's pace, and of a group
        channel.beat()
    assert not first.signals
    while not first.signals:
        channel.beat()
    words = (
        "other tasks were not ready: task 1 on 10.0.0.2, task 2 without a connection to the driver"
    )
    assert words in (first.signals[0].problem or "")
    assert not slow.signals
    channel.receive(1, {"ready": ready})
    channel.receive(2, {"ready": ready})
    assert words in (slow.signals[0].problem or ""), "the others have gone"
