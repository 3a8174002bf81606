"""The control channel between driver and tasks: messages arrive, and silence ends the load."""

from __future__ import annotations

import gc
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.engine.network.options import OneToken
from jobs.engine.stage import connect
from jobs.engine.task.clock_comparison import pinned
from jobs.engine.task.control_channel import (
    ADMISSION_ATTEMPTS,
    PROBLEM_LENGTH,
    SILENCE_MAX_S,
    ControlAddress,
    DriverChannel,
    OrphanedError,
    TaskReady,
)
from jobs.trials import control_server
from jobs.trials.control_server import (
    UNIDENTIFIED_MAX,
    AckedProgress,
    ControlServer,
    TaskChannel,
    own_certificate,
)
from jobs.trials.watching import watching
from metrics.common.errors import ConfigError, RedlineError
from metrics.trial.client import TaskReport
from tests.support import channel_clients
from tests.support.interpreter_steps import steps_of
from tests.support.patterns import plan
from tests.support.processes import PATIENCE_S, becomes

READY = TaskReady(5.0, "host")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlServer]:
    monkeypatch.setattr(control_server, "IDENTIFICATION_S", PATIENCE_S)
    with ControlServer("127.0.0.1", "127.0.0.1") as server:
        yield server


def _call(channel: TaskChannel, task: int) -> DriverChannel:
    return DriverChannel.connect(channel.address, task, PATIENCE_S, lambda: 0.0)


def _until(holds: Callable[[], object]) -> None:
    assert becomes(lambda: bool(holds())), "the condition never became true"


def test_tasks_get_the_end_of_their_window(server: ControlServer) -> None:
    with server.channel(1) as channel:
        task = _call(channel, 0)
        task.send(start_s=1.0)
        _until(lambda: channel.start_s)
        task.receive()
        assert task.end_after_s is None
        channel.begin_after(0.5)
        channel.end_after(3.5)
        _until(lambda: _listened(task) == 3.5)
        assert task.begin_after_s == 0.5
        task.close()


def test_each_task_gets_the_last_token_even_one_that_connects_after_it_was_sent(
    server: ControlServer,
) -> None:
    tokens = {0: OneToken("of the plan"), 1: OneToken("of the plan")}

    def call(channel: TaskChannel, task: int) -> DriverChannel:
        own = plan(client_options={"sasl_oauth_token_provider": tokens[task]})
        return connect(own, channel.address, task, time.time)

    with server.channel(2) as channel:
        channels = {}
        for task in tokens:
            channels[task] = call(channel, task)
            channel.renew_token(f"token {task}", 100.0 + task)

        def arrived(token: str, *tasks: int) -> bool:
            for task in tasks:
                channels[task].receive()
            return {tokens[task].token() for task in tasks} == {token}

        _until(lambda: arrived("token 1", 0, 1))
        assert [each.good_until_s for each in tokens.values()] == [101.0, 101.0]
        for each in channels.values():
            each.close()
    with server.channel(1) as channel:
        channel.renew_token("of later", None)
        channels[0] = call(channel, 0)
        _until(lambda: arrived("of later", 0))
        channels[0].close()


def _listened(task: DriverChannel) -> float | None:
    task.receive()
    return task.end_after_s


def _has_compared(task: DriverChannel) -> bool:
    task.receive()
    return not task.is_comparing


def test_each_window_of_a_load_has_the_clock_of_its_own_time(server: ControlServer) -> None:
    ahead_s = [0.1]
    with server.channel(1) as channel:
        task = DriverChannel.connect(
            channel.address, 0, PATIENCE_S, time.monotonic, lambda: time.time() + ahead_s[0]
        )

        def compare() -> None:
            """Compare the clocks without waiting, as under load."""
            task.ask_clock()
            task.ask_clock()  # one at a time
            _until(lambda: _has_compared(task))

        task.ask_clock()
        task.compare_clocks()  # waits for both answers
        assert not task.is_comparing
        for ahead_now_s in (0.1, 0.1, 0.4):
            ahead_s[0] = ahead_now_s
            compare()
        task.send_window(1, TaskReport(0, "host", 0.0, 1.0))
        compare()
        task.send_window(2, TaskReport(0, "host", 1.0, 2.0))
        _until(lambda: 2 in channel.windows)
        taken = [channel.take_window(number) for number in (1, 2)]
        first, second = (reports[0] for reports in taken if reports)
        for report, offset_s, change_s in ((first, 0.4, 0.3), (second, 0.4, 0.0)):
            clock, change = report.clock, report.clock_change
            assert clock is not None and change is not None
            assert clock.offset_s == pytest.approx(offset_s, abs=clock.error_s + 0.01)
            assert change.offset_s == pytest.approx(change_s, abs=change.error_s + 0.01)
        task.close()


def test_a_driver_that_does_not_answer_delays_no_load() -> None:
    near, far = socket.socketpair()
    seconds = iter(range(100))
    with near, far:
        task = DriverChannel(near, lambda: float(next(seconds)))
        task.compare_clocks()
        assert task.clock_offset is None
        assert far.recv(4_096).count(b"clock") == 1, "requested once"


def test_only_the_driver_of_the_plan_is_trusted(server: ControlServer) -> None:
    _, of_another = own_certificate()
    with server.channel(1) as channel:
        cheated = replace(channel.address, certificate=of_another)
        with pytest.raises(OrphanedError, match="CERTIFICATE_VERIFY_FAILED"):
            DriverChannel.connect(cheated, 0, PATIENCE_S, time.monotonic)


@pytest.mark.parametrize("task", [0, 1, -1, 2])
def test_what_a_connection_says_that_is_not_admitted_does_not_count(
    server: ControlServer, task: int
) -> None:
    """Task 0 runs already, task 1 shows another token, and the load has no tasks -1 and 2."""
    with server.channel(2) as channel:
        running = _call(channel, 0)
        running.send(start_s=1.0, written=5)
        _until(lambda: channel.written == 5)
        token = "guess" if task == 1 else channel.address.token
        hello = json.dumps({"token": token, "task": task})
        said = json.dumps({"written": 7, "ready": READY.document(), "done": True})
        assert _is_disconnected(_send(channel, f"{hello}\n{said}\n".encode()))
        running.send(written=6)
        _until(lambda: channel.written == 6)
        running.receive()
        running.close()
        _until(lambda: channel.failure)  # so it was not done


def test_a_task_that_fails_ends_the_load_of_all_with_its_own_words(server: ControlServer) -> None:
    with server.channel(2) as channel, ThreadPoolExecutor(2) as pool:
        failing, other = _call(channel, 0), _call(channel, 1)
        for start in [pool.submit(each.await_start, READY) for each in (failing, other)]:
            start.result(PATIENCE_S)
        failing.send(start_s=1.0)
        problem = "GroupError: " + "ü😀" * PROBLEM_LENGTH  # each is six or twelve bytes in JSON
        failing.report_failure(problem)
        failing.finish()
        failing.close()
        with pytest.raises(OrphanedError):
            _until(other.receive)
        other.close()
        assert str(channel.failure) == (
            f"task 0 on host failed: {problem[:PROBLEM_LENGTH]}; "
            "the load was ended on all executors"
        )


@pytest.mark.parametrize("ends_before", ["start", "over", ""])
def test_a_task_that_sends_nothing_in_the_middle_of_the_load_ends_it(
    server: ControlServer, ends_before: str
) -> None:
    with server.channel(2) as channel:
        silent, other = _call(channel, 0), _call(channel, 1)
        if ends_before != "start":
            silent.send(start_s=1.0)
        if ends_before == "over":
            silent.report_over()
        other.send(start_s=1.0, written=3)
        _until(lambda: channel.written == 3)

        def beat() -> None:
            for _ in range(int(SILENCE_MAX_S) + 1):
                channel.receive(1, {})
                channel.beat()

        server.post(beat)
        if ends_before:
            other.ask_clock()
            _until(lambda: _has_compared(other))
            assert channel.failure is None
        else:
            _until(lambda: channel.failure)
            assert str(channel.failure).startswith(
                "task 0 on an unknown host sent nothing for 10 s"
            )
        silent.close()
        other.close()


def test_a_watcher_that_fails_ends_the_load(server: ControlServer) -> None:
    def look() -> float:
        raise KeyError("lost")

    with server.channel(1) as channel:
        task = _call(channel, 0)
        with pytest.raises(OrphanedError), watching("windows", look, fail=channel.fail):
            _until(task.receive)
        assert isinstance(channel.failure, KeyError)
        task.close()


def test_a_task_is_admitted_once_so_that_a_stage_that_starts_again_offers_nothing(
    server: ControlServer,
) -> None:
    with server.channel(2) as channel:
        first = _call(channel, 0)
        with pytest.raises(OrphanedError, match="admitted before"):
            _call(channel, 0)
        other = _call(channel, 1)
        first.send(start_s=1.0)
        _until(lambda: channel.start_s)
        first.receive()
        assert channel.failure is None
        first.finish()
        first.close()
        with pytest.raises(OrphanedError):
            _call(channel, 0)
        other.finish()
        other.close()


def test_a_task_that_disconnects_during_the_load_is_lost_and_ends_the_load_of_all(
    server: ControlServer,
) -> None:
    with server.channel(3) as channel:
        whole, lost, other = (_call(channel, task) for task in range(3))
        whole.finish()
        whole.close()
        lost.send(start_s=1.0)
        lost.close()
        _until(lambda: channel.failure)
        assert str(channel.failure).startswith("task 1 on 127.0.0.1 was lost during the load")
        with pytest.raises(OrphanedError):
            _until(other.receive)
        other.close()
        with pytest.raises(OrphanedError):
            _call(channel, 1)


def test_a_task_that_ends_while_the_driver_is_busy_is_not_lost(server: ControlServer) -> None:
    free = threading.Event()
    with server.channel(1) as channel, ThreadPoolExecutor(1) as pool:
        task = _call(channel, 0)
        task.send(start_s=1.0)
        _until(lambda: channel.start_s)

        def be_busy() -> None:
            channel.send(b"\n")  # the task never reads this heartbeat while its load runs
            free.wait(PATIENCE_S)
            channel.send(b"\n")
            channel.send(b"\n")

        server.post(be_busy)

        def end() -> None:
            task.finish()
            task.close()

        ending = pool.submit(end)
        wait([ending], timeout=0.3)  # a task that does not wait for the driver has ended by then
        free.set()
        ending.result(PATIENCE_S)
    assert channel.failure is None


def test_a_load_is_ended_at_once_and_a_task_that_comes_later_does_not_begin(
    server: ControlServer,
) -> None:
    with server.channel(2) as channel:
        early = _call(channel, 0)
        early.send(start_s=1.0)
        _until(lambda: channel.start_s)
        channel.end_now()
        with pytest.raises(OrphanedError):
            _until(early.receive)
        with pytest.raises(OrphanedError):
            _call(channel, 1)
        early.close()
    assert channel.failure is None


@pytest.mark.parametrize("closes", ["channel", "server"])
def test_a_channel_or_server_that_is_closed_ends_the_load(closes: str) -> None:
    server = ControlServer("127.0.0.1", "127.0.0.1")
    with ExitStack() as stack:
        channel = stack.enter_context(server.channel(1))
        task = _call(channel, 0)
        task.send(start_s=1.0)
        _until(lambda: channel.start_s)
        (stack if closes == "channel" else server).close()
        with pytest.raises(OrphanedError, match="driver has ended"):
            _until(task.receive)
        task.close()
    server.close()


def test_a_silent_driver_counts_as_dead_and_one_that_sends_does_not() -> None:
    near, far = socket.socketpair()
    now = [0.0]
    task = DriverChannel(near, lambda: now[0])
    now[0] = SILENCE_MAX_S - 1
    far.sendall(b"\n")
    task.receive()
    now[0] += SILENCE_MAX_S - 1
    task.receive()
    now[0] += 2
    with pytest.raises(OrphanedError, match="the driver sent no message for 10 s"):
        task.receive()
    task.close()
    far.close()


def test_an_address_out_of_reach_is_an_error_with_a_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        host, port = taken.getsockname()
        with pytest.raises(ConfigError, match=r"spark\.redline\.control\.port"):
            ControlServer("127.0.0.1", "127.0.0.1", port)
    with socket.socket() as held:  # bound and not listening: connections are refused
        held.bind(("127.0.0.1", 0))
        host, port = held.getsockname()
        unreachable = ControlAddress(host, port, "secret-word", "")
        assert "secret-word" not in repr(unreachable)
        with pytest.raises(RedlineError, match=r"spark\.redline\.control\.port"):
            DriverChannel.connect(unreachable, 0, PATIENCE_S, time.monotonic)


def _send(channel: TaskChannel, text: bytes) -> socket.socket:
    stranger = socket.create_connection((channel.address.host, channel.address.port), PATIENCE_S)
    stranger.settimeout(PATIENCE_S)
    if text:  # of a stranger who speaks TLS, too
        stranger = pinned(stranger, channel.address.certificate)
        stranger.sendall(text)
    return stranger


def _is_disconnected(stranger: socket.socket) -> bool:
    with stranger, suppress(ConnectionResetError, ssl.SSLError):
        while received := stranger.recv(100):
            assert b"true" not in received
    return True


def test_a_malformed_message_closes_its_connection_and_the_tasks_are_served(
    server: ControlServer,
) -> None:
    with server.channel(1) as channel:
        task, token = _call(channel, 0), channel.address.token.encode()
        for text in (
            b"[1]\n",
            b"[" * 4_000 + b"\n",
            b"null\n",
            b'{"token": "TOKEN", "task": null}\n',
            b'{"token": "TOKEN", "task": 1e400}\n',
            b'{"token": "TOKEN"}\n',
            b"\xff\n",
            b"x" * 10_000 + b"\n",
        ):
            assert _is_disconnected(_send(channel, text.replace(b"TOKEN", token)))
        task.send(start_s=7.0)
        _until(lambda: channel.start_s == 7.0)
        assert channel.failure is None
        task.close()


@pytest.mark.parametrize("text", [b'{"start_s": null}\n', b'{"acked": 1e400, "at_s": 1}\n'])
def test_a_task_with_a_malformed_message_is_lost(server: ControlServer, text: bytes) -> None:
    with server.channel(1) as channel:
        hello = f'{{"token": "{channel.address.token}", "task": 0}}\n'
        with _send(channel, hello.encode()) as task:
            assert b"true" in task.recv(100)
            task.sendall(text)
            _until(lambda: channel.failure)


def test_silent_callers_do_not_use_up_the_drivers_descriptors(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_server, "IDENTIFICATION_S", 0.3)
    with server.channel(1) as channel:
        silent = [_send(channel, b"") for _ in range(UNIDENTIFIED_MAX + 2)]
        task = _call(channel, 0)  # closed at first, admitted once the others are closed
        assert all(map(_is_disconnected, silent))
        task.close()


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_connections_that_arrive_at_the_end_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    unclosed: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: unclosed.append(str(each.exc_value)))
    for turn in range(60):
        with ExitStack() as stack:
            server = ControlServer("127.0.0.1", "127.0.0.1")
            for _ in range(3):
                address = server._host, server._port
                stack.enter_context(closing(socket.create_connection(address)))
            time.sleep(turn % 7 * 0.0003)  # so that some of them wait, and others shake hands
            server.close()
            del server
            gc.collect()
    assert unclosed == []


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_the_connection_to_a_task_that_does_not_answer_the_end_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unclosed: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: unclosed.append(str(each.exc_value)))
    _end_a_channel_twice()
    gc.collect()
    assert unclosed == []


def _end_a_channel_twice() -> None:
    """The driver closes a connection; then the task's end of it closes the connection again."""
    server = ControlServer("127.0.0.1", "127.0.0.1")
    with server.channel(1) as channel, closing(_call(channel, 0)):
        (writer,) = channel._writers

        def end() -> None:
            writer.close()
            writer._protocol.eof_received()  # type: ignore[attr-defined]

        server.post(end)
        _until(lambda: not channel._writers)
        server.close()


def test_a_connection_beyond_the_limit_is_closed_at_once(server: ControlServer) -> None:
    with server.channel(1) as channel:
        silent = [_send(channel, b"") for _ in range(UNIDENTIFIED_MAX + 2)]
        assert _is_disconnected(_send(channel, b""))
        for stranger in silent:
            stranger.close()


def test_a_driver_that_closes_each_connection_is_an_error_after_some_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, certificate = own_certificate()
    monkeypatch.setattr("jobs.engine.task.control_channel._BACKOFF_MIN_S", 0.0)
    accepted = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def close_all() -> None:
            for _ in range(ADMISSION_ATTEMPTS):
                accepted.append(listener.accept()[0])
                accepted[-1].close()

        closing = threading.Thread(target=close_all)
        closing.start()
        host, port = listener.getsockname()
        address = ControlAddress(host, port, "token", certificate)
        with pytest.raises(OrphanedError, match="closed 10 connections of this task"):
            DriverChannel.connect(address, 0, PATIENCE_S, time.monotonic)
        closing.join()
    assert len(accepted) == ADMISSION_ATTEMPTS


CLIENTS = Path(channel_clients.__file__)
"""A program of clients that needs the standard library only."""


def test_500_tasks_that_connect_at_once_are_all_admitted_and_slow_ones_cost_the_others_nothing(
    server: ControlServer,
) -> None:
    tasks, consumers, slow, moments = 400, 100, 3, 20
    with server.channel(tasks, consumers) as channel:
        address = channel.address
        words = [address.host, str(address.port), address.token, address.certificate]
        numbers = map(str, (tasks + consumers, slow, moments))
        done = subprocess.run(
            [sys.executable, "-I", str(CLIENTS), *words, *numbers],
            capture_output=True,
            text=True,
            check=True,
        )
        seen = json.loads(done.stdout)
        assert (seen["admitted"], seen["signals"]) == (500, 497), done.stderr
        _until(lambda: len(channel.acked()) == moments)
        assert channel.acked() == [(n / 4, tasks * n) for n in range(moments)]
        assert channel.written == (tasks + consumers) * (moments - 1)
        assert channel.failure is None


# --- the progress of many tasks, and polling threads ---------------------------------------


def test_a_moment_counts_when_every_task_has_reported_it() -> None:
    progress = AckedProgress(3)
    progress.add(0, 0.25, 10)
    progress.add(0, 0.5, 20)
    progress.add(1, 0.26, 1)
    assert progress.of_current_window() == []
    progress.add(2, 0.24, 100)
    assert progress.of_current_window() == [(0.24, 111)]
    for number in range(2, 9):
        progress.add(2, number / 4, 100 * number)
    for number in range(2, 9):
        progress.add(1, number / 4, number)
        progress.add(0, number / 4 + 0.25, 10 * number + 10)
    assert progress.of_current_window() == [
        (0.24, 111), *((number / 4, 111 * number) for number in range(2, 9))
    ], "a slow task delays the others' reports"  # fmt: skip


def test_reports_of_two_windows_are_never_added_up() -> None:
    progress = AckedProgress(2)
    for task in (0, 1):
        progress.add(task, 1.0, 50)
    progress.end_window(0)
    progress.add(0, 0.25, 7)  # task 0 is in the second window, and task 1 in the first
    progress.add(1, 1.25, 60)
    assert progress.of_current_window() == [(1.0, 100)]
    progress.end_window(1)
    assert progress.of_current_window() == []
    progress.add(1, 0.25, 8)
    assert progress.of_current_window() == [(0.25, 15)]
    # Tasks with consumers do not count.
    progress = AckedProgress(1)
    progress.end_window(1)
    progress.add(1, 0.5, 9)
    progress.add(0, 0.5, 10)
    assert progress.of_current_window() == [(0.5, 10)]


def test_the_work_for_a_report_and_for_a_look_does_not_grow_with_the_tasks() -> None:
    def reported(tasks: int) -> AckedProgress:
        progress = AckedProgress(tasks)
        for moment in range(10):
            for task in range(tasks):
                progress.add(task, float(moment), moment)
        return progress

    few, many = 20, 80
    assert steps_of(lambda: reported(many)) < 4.2 * steps_of(lambda: reported(few))
    looks = [steps_of(reported(tasks).of_current_window) for tasks in (few, many)]
    assert looks[0] == looks[1]


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
