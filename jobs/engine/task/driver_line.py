"""A task's line to the driver: it says how far it is, and hears when the window ends.

The driver listens (`jobs.trials.driver_line`), the task connects before it opens the load.
Both sides speak JSON, one object a line; the first line of a task holds the trial's token and
asks for admission. The driver admits each task of a trial once, and none when the load has
ended: nobody wants it a second time. (Spark itself aborts a barrier stage that has lost a task
if it is the last of its job, as ours is, and would start any other again: its DAGScheduler.)
A line that closes, or that stays silent, means that nobody wants the load any more; a task
that ends in good order says so before it hangs up.
"""

from __future__ import annotations

import base64
import json
import selectors
import socket
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import IO

from jobs.engine.task.agreement import Agreement, Ready
from metrics.columns import row_of
from metrics.common.errors import RedlineError
from metrics.sources.hosts.sample import HostSample
from metrics.trial.clock import ClockOffset, furthest
from metrics.trial.task import TaskReport

SILENCE_MAX_S = 10.0
"""Without a word from the driver for so long, a task takes it for dead [s]."""

NOT_ADMITTED = "the driver does not admit this task: its load has ended, or was begun before"

AGREEMENT_MAX_S = 120.0
"""The last task of a stage is ready so long after the first at most: connections that nobody
answers take twice 20 s, and pools of large records some seconds [s]."""

PIECE_LENGTH = 3_000
"""Of a window's account that one line holds."""

_RECEIVE_BYTES = 4_096
_CLOCK_ROUNDS = 4
_CLOCK_PATIENCE_S = 2.0
"""A driver that does not tell its time for so long does not hold the load up [s]."""


class OrphanedError(RedlineError):
    """Whoever asked for the load is gone, so the load must end."""


@dataclass(frozen=True)
class ControlAddress:
    """Where the driver listens, and the word that makes it listen to a task of this trial."""

    host: str
    port: int
    token: str = field(repr=False)


class DriverLine:
    """An open line; everything but `connect`, `compare_clocks` and `agree` returns at once.

    Attributes:
        end_after_s: the length of the window that the driver set, once it has [s].
        clock_offset: the furthest that this host's clock was seen off the driver's, once
            `compare_clocks` has seen it.
        of_host: what this task saw of its host since it was asked last.
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
        self.of_host: Callable[[], tuple[HostSample, ...]] = tuple
        self._heard_s = clock()
        self._unread = b""
        self._unwritten = b""
        self.end_after_s: float | None = None
        self._agreement: Agreement | None = None

    @classmethod
    def connect(
        cls,
        address: ControlAddress,
        task: int,
        timeout_s: float,
        clock: Callable[[], float],
        wall_clock: Callable[[], float] = time.time,
    ) -> DriverLine:
        """Call the driver, and wait until it admits the task.

        Args:
            clock, wall_clock: monotonic [s], and of the host [s since the epoch].

        Raises:
            RedlineError: it cannot be reached from here.
            OrphanedError: it does not want this load, or not again.
        """
        try:
            sock = socket.create_connection((address.host, address.port), timeout_s)
        except OSError as error:
            raise RedlineError(
                f"{socket.gethostname()} cannot reach the driver at {address.host}:{address.port} "
                f"({error}): let executors connect to it, on a port fixed by "
                "spark.redline.control.port if a firewall is between them"
            ) from error
        try:
            sock.sendall(_line(token=address.token, task=task, asks="admission"))
            # One short line, and the socket's own deadline bounds the wait for it.
            with sock.makefile("rb") as answers:
                admission = _admission_in(answers)
        except (OSError, ValueError) as error:
            sock.close()
            raise OrphanedError(f"the driver does not answer ({error})") from error
        if not admission:
            sock.close()
            raise OrphanedError(NOT_ADMITTED)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock, clock, wall_clock)

    def say(self, **message: object) -> None:
        """Tell the driver something."""
        self._unwritten += _line(**message)
        try:
            self._unwritten = self._unwritten[self._sock.send(self._unwritten) :]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise OrphanedError(f"the line to the driver broke ({error}); the load ends") from error

    def tell_window(self, number: int, report: TaskReport) -> None:
        """Hand over the account of a window that is over, in pieces that fit into lines.

        Args:
            number: of the window in its load, from 1.
        """
        whole = replace(report, host_samples=self.of_host())
        told = zlib.compress(json.dumps(row_of(whole), default=datetime.isoformat).encode())
        text = base64.b64encode(told).decode("ascii")
        pieces = [text[at : at + PIECE_LENGTH] for at in range(0, len(text), PIECE_LENGTH)]
        for index, piece in enumerate(pieces):
            self.say(window=number, piece=piece, left=len(pieces) - 1 - index)

    def listen(self) -> None:
        """Take what the driver said.

        Raises:
            OrphanedError: it closed the line, or was silent for `SILENCE_MAX_S`.
        """
        now = self._clock()
        while True:
            try:
                received = self._sock.recv(_RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                raise OrphanedError(f"the line to the driver broke ({error})") from error
            if not received:
                raise OrphanedError("the driver has ended, so its load ends too")
            self._heard_s = now
            self._unread += received
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            if line:
                message = json.loads(line)
                self.end_after_s = message.get("end_after_s", self.end_after_s)
                self._driver_s = message.get("clock_s", self._driver_s)
                if "agreed" in message:
                    self._agreement = Agreement(**message["agreed"])
        if now - self._heard_s > SILENCE_MAX_S:
            raise OrphanedError(f"nothing heard from the driver for {SILENCE_MAX_S:.0f} s")

    def compare_clocks(self) -> None:
        """See how far this host's clock is off the driver's; waits, so never under load.

        As NTP does: of some round trips the shortest counts, and its half bounds the error.

        Raises:
            OrphanedError: the driver is gone.
        """
        found: list[ClockOffset] = []
        for _ in range(_CLOCK_ROUNDS):
            self._driver_s, sent_s, sent_wall_s = None, self._clock(), self._wall_clock()
            self.say(asks="clock")
            self._listen_until(lambda: self._driver_s is not None, sent_s + _CLOCK_PATIENCE_S)
            driver_s = self._driver_s
            if driver_s is None:
                break
            half_s = (self._clock() - sent_s) / 2
            found.append(ClockOffset(sent_wall_s + half_s - driver_s, half_s))
        seen = [min(found, key=lambda each: each.error_s)] if found else []
        before = [self.clock_offset] if self.clock_offset is not None else []
        self.clock_offset = furthest([*before, *seen])

    def agree(self, ready: Ready) -> Agreement:
        """Tell the driver that this task is ready, or cannot be, and wait until all have told.

        Raises:
            OrphanedError: the driver is gone, or has lost a task, or has not heard of all in time.
        """
        self.say(ready=ready.document())
        self._listen_until(lambda: self._agreement is not None, self._clock() + AGREEMENT_MAX_S)
        if self._agreement is None:
            raise OrphanedError(
                f"the driver has not heard of all tasks of this load for {AGREEMENT_MAX_S:.0f} s"
            )
        return self._agreement

    def _listen_until(self, is_heard: Callable[[], bool], until_s: float) -> None:
        """Wait for a word of the driver, at most until then by this line's clock [s]."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._sock, selectors.EVENT_READ)
            while not is_heard() and (left_s := until_s - self._clock()) > 0:
                selector.select(min(left_s, SILENCE_MAX_S))
                self.listen()

    def finish(self) -> None:
        """Say that the task ends in good order; nobody needs to hear it any more."""
        with suppress(OrphanedError):
            self.say(done=True)

    def close(self) -> None:
        """Hang up."""
        self._sock.close()


def report_in(text: str) -> TaskReport:
    """What `tell_window` handed over, its pieces joined.

    Raises:
        ValueError: it is no such account.
    """
    return TaskReport.from_row(json.loads(zlib.decompress(base64.b64decode(text))))


def _line(**message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _admission_in(answers: IO[bytes]) -> bool:
    while text := answers.readline(_RECEIVE_BYTES):
        if text.strip():  # else it is the driver's sign of life
            return bool(json.loads(text).get("admitted"))
    return False
