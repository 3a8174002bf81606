"""Control channel of a task to the driver: reports of progress one way, the end of the window back.

The driver listens (`jobs.trials.control_server`), and the task connects by TLS before it opens the
load. The plan has the driver's certificate, which proves the driver, and the trial's token, which
proves the task and is its first line. Both sides send JSON, one object a line. The driver admits
each task of a trial once, and no task of a load that has ended.
(Spark itself aborts a barrier stage that has lost a task if it is the last stage of its job, as
this one is; it would start any other stage again: see its DAGScheduler.)
A channel that closes or stays silent ends the load; a task that ends as planned says so before it
closes the channel.

Start of a load: all tasks begin at one moment, once every one of them is ready.
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
from metrics.sources.hosts.source import HostSample
from metrics.trial.client import ClockOffset, TaskReport, furthest

PROBLEM_LENGTH = 2_000
"""Characters of a problem that are sent: a message on the control channel is one short line."""
LATE_MAX_S = 5.0
"""Longest delay of the driver that moves the start [s]. A longer one is a difference between the
driver's clock and the clock of the task's host."""


@dataclass(frozen=True)
class TaskReady:
    """Message of a task that has opened all it needs, or has failed to.

    Attributes:
        now_s: time of its host's clock [s since the epoch].
        host: name of its host.
        problem: what keeps the task from taking part; None when it is ready.
    """

    now_s: float
    host: str
    problem: str | None = None

    @classmethod
    def parse(cls, message: Mapping[str, Any]) -> TaskReady:
        """Read what `document` returned.

        Raises:
            KeyError, TypeError, ValueError: the message has another form.
        """
        problem = message["problem"]
        text = None if problem is None else str(problem)
        return cls(float(message["now_s"]), str(message["host"]), text)

    def document(self) -> dict[str, Any]:
        """The message as plain values, with a problem cut to `PROBLEM_LENGTH`."""
        document = asdict(self)
        document["problem"] = self.problem and self.problem[:PROBLEM_LENGTH]
        return document


@dataclass(frozen=True)
class StartSignal:
    """Message to a task when all tasks are ready.

    Attributes:
        ready_s: when the last task was ready, by its host's clock; later where a busy driver
            received its message late [s since the epoch].
        problem: why this task takes no part, because of itself or of another task; None when the
            load starts.
        watches_host: whether this task is the one that watches its host.
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
        received_s: when the driver received the last of them, by its own clock [s since the
            epoch]; 0 where the tasks exchange them without the driver.
        missing: which tasks sent no message in time; empty when all did.
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
"""Silence of the driver after which a task ends its load [s]."""

NOT_ADMITTED = "the driver does not admit this task: its load has ended, or was begun before"

FINISH_WAIT_MAX_S = 5.0
"""Longest wait for a driver that is too busy to read the end of a task [s]."""

PIECE_LENGTH = 3_000
"""Characters of a window's report in one line."""
WINDOW_BYTES_MAX = 32 * 2**20
"""Longest report of a window; one of 10,000 partitions has about 3 MB [B]."""

ADMISSION_ATTEMPTS = 10
"""Connections that a task opens at most while the driver closes them without an answer."""

_BACKOFF_MIN_S, _BACKOFF_MAX_S = 0.1, 2.0
_JITTER = (0.5, 1.5)
_NOTHING_YET = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_RECEIVE_BYTES = 4_096
_CLOCK_ROUNDS = 4
_CLOCK_TIMEOUT_S = 2.0
"""Longest wait for the driver's time, so that a slow driver does not delay the load [s]."""


class OrphanedError(RedlineError):
    """The process that asked for the load is gone, so the load ends."""


@dataclass(frozen=True)
class ControlAddress:
    """Address at which the driver listens, its certificate, and the token of the trial's tasks."""

    host: str
    port: int
    token: str = field(repr=False)
    certificate: str = field(repr=False)


class DriverChannel:
    """An open control channel. Only `connect`, `compare_clocks`, `await_start`, `finish` block.

    Attributes:
        climb_end_s: when a load stops to grow, after its start; None until the driver sets it [s].
        begin_after_s: length of the warm-up that the driver set; None until it sets one [s].
        end_after_s: length of the window that the driver set; None until it sets one [s].
        clock_offset: largest offset of this host's clock from the driver's that `compare_clocks`
            has found; None before the first comparison.
        clock_change: change of that offset since the first comparison; None before the second.
        take_host_samples: returns the samples of this task's host since its last call.
        take_token: receives each new token for the brokers, and its end [s since the epoch].
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

        A driver that has too many new connections closes some without an answer; the task then
        tries again after a random time, so that many tasks do not return at the same moment.

        Args:
            timeout_s: longest wait for a connection, and for the answer on it [s].
            clock: monotonic [s].
            wall_clock: of this host [s since the epoch].

        Raises:
            RedlineError: the driver cannot be reached from here.
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
            "look for other programs that connect to its control port"
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
            raise OrphanedError(
                f"the control channel to the driver broke ({error}); the load ends"
            ) from error

    def send_window(self, number: int, report: TaskReport) -> None:
        """Send the report of a window that has ended, in pieces that fit into lines.

        Args:
            number: of the window in its load, from 1.
        """
        whole = replace(
            self.place(report),
            host_samples=self.take_host_samples(),
            clock=self.clock_offset,
            clock_change=self.clock_change,
        )
        # The next window begins with the clock as it is now.
        self.clock_offset = self._first_offset = self._last_offset
        self.clock_change = None
        packed = zlib.compress(json.dumps(row_of(whole), default=datetime.isoformat).encode())
        text = base64.b64encode(packed).decode("ascii")
        pieces = [text[at : at + PIECE_LENGTH] for at in range(0, len(text), PIECE_LENGTH)]
        for index, piece in enumerate(pieces):
            self.send(window=number, piece=piece, left=len(pieces) - 1 - index)

    def receive(self) -> None:
        """Read the messages of the driver that have arrived.

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
                raise OrphanedError(
                    f"the control channel to the driver broke ({error}); the load ends"
                ) from error
            if not received:
                raise OrphanedError("the driver has ended, so its load ends too")
            self._last_received_s = now
            self._unread += received
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            if line:
                self._take(json.loads(line))
        if now - self._last_received_s > SILENCE_MAX_S:
            raise OrphanedError(
                f"{SILENCE_MAX_S:.0f} s without a message from the driver; the load ends"
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
        """Compare this host's clock with the driver's; blocks, so it is not called under load.

        Raises:
            OrphanedError: the driver is gone.
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
        """Whether the answer to `ask_clock` has not arrived yet."""
        return self._asked is not None

    def ask_clock(self) -> None:
        """Ask for the driver's time without waiting; `receive` compares the clocks by the answer.

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
        """Keep a measurement: the largest offset, and the largest change since the first one."""
        if self._first_offset is None:
            self._first_offset = seen
        else:
            changes = (self.clock_change, seen.since(self._first_offset))
            self.clock_change = furthest(each for each in changes if each is not None)
        offsets = (self.clock_offset, seen)
        self.clock_offset = furthest(each for each in offsets if each is not None)
        self._last_offset = seen

    def _ask_clock(self) -> float | None:
        """The driver's time [s since the epoch]; None when it does not answer in time."""
        self._driver_s = None
        until_s = self._clock() + _CLOCK_TIMEOUT_S
        self.send(asks="clock")
        self._receive_until(lambda: self._driver_s is not None, until_s)
        return self._driver_s

    def await_start(self, ready: TaskReady) -> StartSignal:
        """Report whether this task is ready, and wait for the driver's start signal.

        The driver sends it when all tasks have reported, or have had their time to open.

        Raises:
            OrphanedError: the driver is gone, or has lost a task.
        """
        self.send(ready=ready.document())
        self._receive_until(lambda: self._start_signal is not None, math.inf)
        assert self._start_signal is not None, "nothing else ends the wait"
        return self._start_signal

    def _receive_until(self, has_arrived: Callable[[], bool], until_s: float) -> None:
        """Wait for a message of the driver, at most until this time of the channel's clock [s]."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._sock, selectors.EVENT_READ)
            while not has_arrived() and (left_s := until_s - self._clock()) > 0:
                selector.select(min(left_s, SILENCE_MAX_S))
                self.receive()

    def report_over(self) -> None:
        """Report once that the load is over, after which this task may be silent."""
        if not self._is_over:
            self._is_over = True
            self.send(over=True)

    def report_failure(self, problem: str) -> None:
        """Report why this task leaves the load before its end, which ends the load of all."""
        with suppress(OrphanedError):
            self.send(failed=problem[:PROBLEM_LENGTH])

    def finish(self) -> None:
        """Report that the task ends as planned, and wait until the driver closes the connection.

        A connection that closes with a heartbeat unread is reset, and a driver that writes to it
        drops what it has not read yet: the report of the end, too, so that the task would count as
        lost. A driver that is gone does not matter any more.
        """
        with suppress(OrphanedError, OSError):
            self.send(done=True)
            until_s = self._clock() + FINISH_WAIT_MAX_S
            self._sock.settimeout(FINISH_WAIT_MAX_S)
            self._sock.sendall(self._unwritten)
            while self._clock() < until_s and self._sock.recv(_RECEIVE_BYTES):
                continue

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()


def unpacked_window(text: str) -> bytes:
    """The JSON that `send_window` sent, its pieces joined.

    Raises:
        ValueError, zlib.error: the text is not packed in this way, or too large.
    """
    inflating = zlib.decompressobj()
    found = inflating.decompress(base64.b64decode(text), WINDOW_BYTES_MAX)
    if not inflating.eof:
        raise ValueError(f"a report that is cut off, or longer than {WINDOW_BYTES_MAX} bytes")
    return found


def parse_window(packed: str) -> TaskReport:
    """Read a report that `unpacked_window` accepts; up to 40 ms for 10,000 partitions."""
    return TaskReport.from_row(json.loads(unpacked_window(packed)))


def _encode(**message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _connected(address: ControlAddress, timeout_s: float) -> socket.socket:
    try:
        return socket.create_connection((address.host, address.port), timeout_s)
    except OSError as error:
        raise RedlineError(
            f"{socket.gethostname()} cannot reach the driver at {address.host}:{address.port} "
            f"({error}): let executors connect to it, on a port fixed by "
            "spark.redline.control.port if a firewall is between them"
        ) from error


def _ask_admission(sock: socket.socket, token: str, task: int) -> bool | None:
    """Ask for admission; None where the driver closes the connection without an answer."""
    sock.sendall(_encode(token=token, task=task))
    # The answer is one short line, and the socket's own timeout bounds the wait for it. Without a
    # buffer, the lines after it are left to the channel.
    with sock.makefile("rb", buffering=0) as answers:
        while text := answers.readline(_RECEIVE_BYTES):
            if text.strip():  # an empty line is a heartbeat
                return bool(json.loads(text).get("admitted"))
    return None
