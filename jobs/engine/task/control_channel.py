"""Control channel between a task and the driver: progress reports, and decisions of the driver.

The driver listens (`jobs.trials.control_server`). The task connects with TLS before it opens its
connections to brokers. The plan contains the driver's certificate and the trial's token. The
certificate authenticates the driver. The task sends the token in its first message, to authenticate
itself. The driver and the task send JSON, one object per line. The driver admits each task of a
trial only once. After a load has ended, the driver admits no task of this load. If a barrier stage
loses a task, Spark usually restarts the stage. If the stage is the last stage of its job, Spark
aborts the stage instead (see Spark's DAGScheduler). The stage of a trial is the last stage of its
job, so Spark aborts this stage if a task is lost.

A channel that closes or stays silent ends the load. A task that ends as planned reports its end
before it closes the channel.

All tasks start their load at the same time, after every task is ready.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import random
import selectors
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from jobs.engine.task.clock_comparison import compare_clocks, pinned
from metrics.columns import row_of
from metrics.common.errors import RedlineError
from metrics.sources.hosts.host_sample import HostSample
from metrics.trial.client import ClockOffset, TaskReport, furthest

PROBLEM_LENGTH = 2_000
"""Maximum length of a problem's text [characters]: a message on the control channel is one short
line."""
LATE_MAX_S = 5.0
"""A busy driver can receive the tasks' messages late. The start of the load is delayed for this
reason by at most this time [s]. If a message seems to arrive with a longer delay, a part of the
delay is assumed to be a difference between the clocks of the driver and the task's host."""


@dataclass(frozen=True)
class TaskReady:
    """Message of a task that has opened all its connections, or has failed to open them.

    Attributes:
        now_s: time on the clock of the task's host [s since the epoch].
        host: name of the task's host.
        problem: reason why the task cannot offer its load; None if the task is ready.
    """

    now_s: float
    host: str
    problem: str | None = None

    @classmethod
    def parse(cls, message: Mapping[str, Any]) -> TaskReady:
        """Read a message that `document` has made.

        Raises:
            KeyError, TypeError, ValueError: the message has another form.
        """
        problem = message["problem"]
        text = None if problem is None else str(problem)
        return cls(float(message["now_s"]), str(message["host"]), text)

    def document(self) -> dict[str, Any]:
        """The message as plain values. A problem is cut to `PROBLEM_LENGTH`."""
        return asdict(self) | {"problem": self.problem and self.problem[:PROBLEM_LENGTH]}


@dataclass(frozen=True)
class StartSignal:
    """Message to a task after all tasks have reported.

    Attributes:
        ready_s: time at which the last task was ready, on the clock of that task's host [s since
            the epoch]. If a busy driver received the last message later, `ready_s` is the time at
            which the driver received it. But `ready_s` is never more than `LATE_MAX_S` later than
            the time at which the task was ready.
        problem: reason why the load does not start: a problem of this task or of another task; None
            if the load starts.
        watches_host: whether this task samples its host.
    """

    ready_s: float
    problem: str | None = None
    watches_host: bool = False


def start_signals(
    ready: Mapping[int, TaskReady], received_s: float = 0.0, missing: str = ""
) -> dict[int, StartSignal]:
    """Task → its start signal.

    Args:
        ready: messages of the tasks.
        received_s: time at which the driver received the last message, on the driver's clock [s
            since the epoch]; 0 if the tasks exchange messages without the driver.
        missing: text about the tasks whose messages did not arrive in time; empty if all messages
            arrived in time.
    """
    last_s = max(each.now_s for each in ready.values())
    ready_s = min(max(last_s, received_s), last_s + LATE_MAX_S)
    problem = next((ready[task].problem for task in sorted(ready) if ready[task].problem), None)
    of_others = missing or (None if problem is None else f"another task: {problem}")
    first = {ready[task].host: task for task in sorted(ready, reverse=True)}
    return {
        task: StartSignal(ready_s, each.problem or of_others, first[each.host] == task)
        for task, each in ready.items()
    }


_log = logging.getLogger(__name__)

SILENCE_MAX_S = 10.0
"""Longest silence of the driver before a task ends its load [s]."""

NOT_ADMITTED = "the driver refuses this task: the load has ended, or the task was admitted before"

FINISH_WAIT_MAX_S = 5.0
"""Longest wait until a busy driver reads that a task has ended [s]."""

PIECE_LENGTH = 3_000
"""Number of characters of a window's report in one line."""
WINDOW_BYTES_MAX = 32 * 2**20
"""Maximum size of a window's report [B]. A report with 10,000 partitions has about 3 MB."""

ADMISSION_ATTEMPTS = 10
"""Maximum number of attempts of a task to connect, if the driver closes the connections without an
answer."""

_BACKOFF_MIN_S, _BACKOFF_MAX_S = 0.1, 2.0
_JITTER = (0.5, 1.5)
_NOTHING_YET = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_RECEIVE_BYTES = 4_096
_CLOCK_ROUNDS = 4
_CLOCK_TIMEOUT_S = 2.0
"""Longest wait for the answer to a request for the driver's time [s]. With this limit, a slow
driver cannot delay the load."""


class OrphanedError(RedlineError):
    """The driver or the parent process has ended, so the load ends."""


@dataclass(frozen=True)
class ControlAddress:
    """The driver's address, its certificate, and the token of the trial's tasks."""

    host: str
    port: int
    token: str = field(repr=False)
    certificate: str = field(repr=False)


class DriverChannel:
    """An open control channel. Only the methods `connect`, `compare_clocks`, `await_start` and
    `finish` block.

    Attributes:
        climb_end_s: time from the start of the load until the load stops growing [s]; None until
            the driver sets it.
        begin_after_s: length of the warm-up [s]; None until the driver sets it.
        end_after_s: length of the window [s]; None until the driver sets it.
        clock_offset: largest measured offset between this host's clock and the driver's clock; None
            before the first comparison.
        clock_change: change of the offset since the first comparison; None before the second
            comparison.
        take_host_samples: returns the samples of this task's host since its last call.
        take_token: called for each new token for the brokers, with the token and the token's expiry
            [s since the epoch].
    """

    def __init__(
        self,
        sock: socket.socket,
        clock: Callable[[], float],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._clock = clock
        self._wall_clock = wall_clock
        self._driver_s: float | None = None
        self.clock_offset: ClockOffset | None = None
        self.clock_change: ClockOffset | None = None
        self._first_offset: ClockOffset | None = None
        self._last_offset: ClockOffset | None = None
        self._asked: tuple[float, float] | None = None
        self.take_host_samples: Callable[[], tuple[HostSample, ...]] = tuple
        self.place: Callable[[TaskReport], TaskReport] = lambda report: report
        self._last_received_s = clock()
        self._unread = b""
        self._unwritten = b""
        self.climb_end_s: float | None = None
        self.begin_after_s: float | None = None
        self.end_after_s: float | None = None
        self._start_signal: StartSignal | None = None
        self._is_over = False
        self.take_token: Callable[[str, float | None], None] = lambda _token, _until_s: None

    @classmethod
    def connect(
        cls,
        address: ControlAddress,
        task: int,
        timeout_s: float,
        clock: Callable[[], float],
        wall_clock: Callable[[], float] = time.time,
    ) -> DriverChannel:
        """Connect to the driver, and wait until it admits the task.

        A driver with too many new connections closes some of them without an answer. A task whose
        connection was closed tries again after a random time, so that many tasks do not try again
        at the same moment.

        Args:
            timeout_s: longest wait for a connection, and then for the driver's answer [s].
            clock: monotonic clock [s].
            wall_clock: clock of this host [s since the epoch].

        Raises:
            RedlineError: the driver cannot be reached from this host.
            OrphanedError: the driver does not admit the task, or never answers.
        """
        for attempt in range(ADMISSION_ATTEMPTS):
            if attempt:
                backoff_s = min(_BACKOFF_MAX_S, _BACKOFF_MIN_S * 2 ** (attempt - 1))
                time.sleep(backoff_s * random.uniform(*_JITTER))
            is_admitted = None
            sock = _connected(address, timeout_s)
            try:
                sock = pinned(sock, address.certificate)
                is_admitted = _ask_admission(sock, address.token, task)
            except (ConnectionError, ssl.SSLEOFError):
                _log.info("the driver closed the connection of task %d; trying again", task)
            except (OSError, ValueError) as error:
                raise OrphanedError(f"the driver does not answer ({error})") from error
            finally:
                if not is_admitted:
                    sock.close()
            if is_admitted:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return cls(sock, clock, wall_clock)
            if is_admitted is not None:
                raise OrphanedError(NOT_ADMITTED)
        raise OrphanedError(
            f"the driver closed {ADMISSION_ATTEMPTS} connections of this task without an answer; "
            "expected an admission; look for other programs that connect to the driver's "
            "control port"
        )

    def send(self, **message: object) -> None:
        """Send a message to the driver.

        Raises:
            OrphanedError: the connection is lost.
        """
        self._unwritten += _encode(**message)
        try:
            self._unwritten = self._unwritten[self._sock.send(self._unwritten) :]
        except _NOTHING_YET:
            return
        except OSError as error:
            raise _broken(error) from error

    def send_window(self, number: int, report: TaskReport) -> None:
        """Send the report of a window that has ended, in pieces that fit into lines.

        Args:
            number: number of the window in its load, from 1.
        """
        whole = replace(
            self.place(report),
            host_samples=self.take_host_samples(),
            clock=self.clock_offset,
            clock_change=self.clock_change,
        )
        # The next window starts from the current offset of the clock.
        self.clock_offset = self._first_offset = self._last_offset
        self.clock_change = None
        packed = zlib.compress(json.dumps(row_of(whole), default=datetime.isoformat).encode())
        text = base64.b64encode(packed).decode("ascii")
        pieces = [text[at : at + PIECE_LENGTH] for at in range(0, len(text), PIECE_LENGTH)]
        for index, piece in enumerate(pieces):
            self.send(window=number, piece=piece, left=len(pieces) - 1 - index)

    def receive(self) -> None:
        """Read the messages that have arrived from the driver.

        Raises:
            OrphanedError: the driver closed the channel, or was silent for `SILENCE_MAX_S`.
        """
        now = self._clock()
        while True:
            try:
                received = self._sock.recv(_RECEIVE_BYTES)
            except _NOTHING_YET:
                break
            except OSError as error:
                raise _broken(error) from error
            if not received:
                raise OrphanedError("the driver has ended, so the load ends, too")
            self._last_received_s = now
            self._unread += received
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            if line:
                self._take(json.loads(line))
        if now - self._last_received_s > SILENCE_MAX_S:
            raise OrphanedError(
                f"the driver sent no message for {SILENCE_MAX_S:.0f} s, so the load ends"
            )

    def _take(self, message: dict[str, Any]) -> None:
        self.climb_end_s = message.get("climb_end_s", self.climb_end_s)
        self.begin_after_s = message.get("begin_after_s", self.begin_after_s)
        self.end_after_s = message.get("end_after_s", self.end_after_s)
        if "token" in message:
            self.take_token(message["token"], message["good_until_s"])
        if "clock_s" in message:
            self._receive_clock(float(message["clock_s"]))
        if "agreed" in message:
            self._start_signal = StartSignal(**message["agreed"])

    def compare_clocks(self) -> None:
        """Compare this host's clock with the driver's. The call blocks, so it must not be used
        during a load.

        Raises:
            OrphanedError: the driver has ended.
        """
        until_s = self._clock() + _CLOCK_TIMEOUT_S
        self._receive_until(lambda: not self.is_comparing, until_s)
        if self.is_comparing:
            return
        found = compare_clocks(self._ask_clock, _CLOCK_ROUNDS, self._clock, self._wall_clock)
        if found is not None:
            self._note(ClockOffset(*found))

    @property
    def is_comparing(self) -> bool:
        """Whether `ask_clock` still waits for an answer."""
        return self._asked is not None

    def ask_clock(self) -> None:
        """Ask for the driver's time without waiting. `receive` handles the answer.

        Raises:
            OrphanedError: the connection is lost.
        """
        if self._asked is None:
            self._asked = (self._clock(), self._wall_clock())
            self.send(asks="clock")

    def _receive_clock(self, driver_s: float) -> None:
        if self._asked is None:
            self._driver_s = driver_s
            return
        (sent_s, sent_wall_s), self._asked = self._asked, None
        half_s = (self._clock() - sent_s) / 2
        self._note(ClockOffset(sent_wall_s + half_s - driver_s, half_s))

    def _note(self, seen: ClockOffset) -> None:
        """Keep a measured offset: update the largest offset and the change since the first one."""
        if self._first_offset is None:
            self._first_offset = seen
        else:
            changes = (self.clock_change, seen.since(self._first_offset))
            self.clock_change = furthest(each for each in changes if each is not None)
        offsets = (self.clock_offset, seen)
        self.clock_offset = furthest(each for each in offsets if each is not None)
        self._last_offset = seen

    def _ask_clock(self) -> float | None:
        """The driver's time [s since the epoch]; None if the driver does not answer in time."""
        self._driver_s = None
        until_s = self._clock() + _CLOCK_TIMEOUT_S
        self.send(asks="clock")
        self._receive_until(lambda: self._driver_s is not None, until_s)
        return self._driver_s

    def await_start(self, ready: TaskReady) -> StartSignal:
        """Report whether this task is ready, and wait for the driver's start signal.

        The driver sends the signal when all tasks have reported, or have used up their time to open
        connections.

        Raises:
            OrphanedError: the driver has ended, or has lost a task.
        """
        self.send(ready=ready.document())
        self._receive_until(lambda: self._start_signal is not None, math.inf)
        assert self._start_signal is not None, "the wait ended without a start signal"
        return self._start_signal

    def _receive_until(self, has_arrived: Callable[[], bool], until_s: float) -> None:
        """Receive messages until `has_arrived` returns True, or the channel's clock reaches
        `until_s`.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._sock, selectors.EVENT_READ)
            while not has_arrived() and (left_s := until_s - self._clock()) > 0:
                selector.select(min(left_s, SILENCE_MAX_S))
                self.receive()

    def report_over(self) -> None:
        """Report that the load is over; after the first call, do nothing. After the report, this
        task may be silent.
        """
        if not self._is_over:
            self._is_over = True
            self.send(over=True)

    def report_failure(self, problem: str) -> None:
        """Report why this task ends its load early. The driver then ends the load of all tasks."""
        with suppress(OrphanedError):
            self.send(failed=problem[:PROBLEM_LENGTH])

    def finish(self) -> None:
        """Report that the task ends as planned, and wait until the driver closes the connection.

        The driver closes the connection before the task does. If the task closed the connection
        before it has read a heartbeat, the connection would be reset. Such a reset could delete
        messages that the driver has not read yet. If the driver loses the report that the task
        ended as planned, the task counts as lost. An error of the connection is ignored, because it
        means that the driver has ended.
        """
        with suppress(OrphanedError, OSError):
            self.send(done=True)
            until_s = self._clock() + FINISH_WAIT_MAX_S
            self._sock.settimeout(FINISH_WAIT_MAX_S)
            self._sock.sendall(self._unwritten)
            while self._clock() < until_s and self._sock.recv(_RECEIVE_BYTES):
                continue

    def close(self) -> None:
        """Close the connection to the driver."""
        self._sock.close()


def unpacked_window(text: str) -> bytes:
    """Unpack a report, from the joined pieces that `send_window` sent; return the report as JSON.

    Raises:
        ValueError, zlib.error: the text has another form, or the report is too large.
    """
    inflating = zlib.decompressobj()
    found = inflating.decompress(base64.b64decode(text), WINDOW_BYTES_MAX)
    if not inflating.eof:
        raise ValueError(f"a report is cut off, or longer than {WINDOW_BYTES_MAX} bytes")
    return found


def parse_window(packed: str) -> TaskReport:
    """Read a packed report. The reading takes up to 40 ms for 10,000 partitions."""
    return TaskReport.from_row(json.loads(unpacked_window(packed)))


def _broken(error: OSError) -> OrphanedError:
    return OrphanedError(f"the control channel to the driver broke ({error}); the load ends")


def _encode(**message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _connected(address: ControlAddress, timeout_s: float) -> socket.socket:
    try:
        return socket.create_connection((address.host, address.port), timeout_s)
    except OSError as error:
        raise RedlineError(
            f"{socket.gethostname()} cannot reach the driver at {address.host}:{address.port} "
            f"({error}); expected a driver that executors can connect to; if a firewall is between "
            "them, set a port with spark.redline.control.port, and open this port"
        ) from error


def _ask_admission(sock: socket.socket, token: str, task: int) -> bool | None:
    """Ask the driver for admission; None if the driver closes the connection without an answer."""
    sock.sendall(_encode(token=token, task=task))
    # The answer is one short line. The socket's timeout limits the wait. Without a buffer, the
    # lines after the answer remain for the channel.
    with sock.makefile("rb", buffering=0) as answers:
        while text := answers.readline(_RECEIVE_BYTES):
            if text.strip():  # an empty line is a heartbeat
                return bool(json.loads(text).get("admitted"))
    return None
