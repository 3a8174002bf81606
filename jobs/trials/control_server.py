"""The driver's end of the control channels to the tasks of a trial.

Tasks connect with `jobs.engine.task.control_channel` over TLS; the driver creates its own
certificate. Each task reports that it is ready, and receives the start signal once all tasks are
ready. Tasks report the number of acknowledged records, and may request the driver's time. The
driver may end the measured window early, and sends new tokens for the brokers. During the load, the
driver and each task send a message at least once per second, so that each of them notices the loss
of the other. If a task fails, disconnects before it is done, or is silent under load, the load of
all tasks ends.

`AckedProgress` sums the tasks' reports to the number of acknowledged records over time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import secrets
import socket
import ssl
import tempfile
import threading
import time
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from jobs.engine.network.connections import ensure_descriptors
from jobs.engine.task.control_channel import (
    PIECE_LENGTH,
    SILENCE_MAX_S,
    ControlAddress,
    TaskReady,
    parse_window,
    start_signals,
    unpacked_window,
)
from metrics.common.errors import ConfigError, RedlineError
from metrics.traffic.pattern import Phases
from metrics.trial.client import TaskReport
from metrics.units import format_some

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class AckedProgress:
    """The number of acknowledged records of all tasks together, over time. Each number is the sum
    of one report of every task.

    The reports of all tasks are summed when the last of these reports arrives. So each call of
    `of_current_window` takes the same memory and time for any number of tasks. The sum of the
    records begins at 0 in each window.

    Args:
        tasks: number of tasks with producers, numbered from 0; reports of other tasks are ignored.
    """

    def __init__(self, tasks: int) -> None:
        self._window_of = [0] * tasks
        self._windows = {0: _Window(tasks)}

    def add(self, task: int, at_s: float, records: int) -> None:
        """Add a task's report on its current window.

        Args:
            task: index of the task.
            at_s: time since the start of the window [s].
            records: records acknowledged since the start of the window.
        """
        if task < len(self._window_of):
            number = self._window_of[task]
            if number not in self._windows:
                self._windows = {**self._windows, number: _Window(len(self._window_of))}
            self._windows[number].add(task, at_s, records)

    def end_window(self, task: int) -> None:
        """End the current window of a task: its later reports belong to the next window."""
        if task >= len(self._window_of):
            return
        self._window_of[task] += 1
        ended = min(self._window_of)
        self._windows = {n: each for n, each in self._windows.items() if n >= ended}

    def of_current_window(self) -> list[tuple[float, int]]:
        """The acknowledged records over time, as pairs, oldest first: the time since the window's
        start [s], and the number of records acknowledged until this time.

        The pairs are from the latest window on which all tasks have reported. Any thread may call
        this method.
        """
        known = {number: each for number, each in list(self._windows.items()) if each.sums}
        return list(known[max(known)].sums) if known else []


class _Window:
    """The reports on one window.

    Attributes:
        sums: pairs: the time since the window's start [s], and the number of records of all tasks
            until this time. The number of records in a pair is the sum of one report of every task.
    """

    def __init__(self, tasks: int) -> None:
        self.sums: list[tuple[float, int]] = []
        self._pending: list[deque[tuple[float, int]]] = [deque() for _ in range(tasks)]
        self._missing = tasks

    def add(self, task: int, at_s: float, records: int) -> None:
        """Add a report; once every task has an unused report, sum the oldest unused report of each
        task.
        """
        own = self._pending[task]
        self._missing -= not own
        own.append((at_s, records))
        if self._missing:
            return
        reports = [each.popleft() for each in self._pending]
        self._missing = sum(not each for each in self._pending)
        self.sums.append((min(at for at, _ in reports), sum(count for _, count in reports)))


_log = logging.getLogger(__name__)

_HEARTBEAT_S = 1.0
_LINE_BYTES_MAX = 32_768
"""Longest line that a task sends [B]: an error text of `PROBLEM_LENGTH` characters, each escaped in
JSON.
"""
_CERTIFICATE_DAYS = 3_650
IDENTIFICATION_S = 5.0
"""The driver closes a connection that has not identified itself within this time [s]."""
UNIDENTIFIED_MAX = 64
"""Largest number of connections that have not identified themselves yet, in addition to twice the
number of expected tasks. Each connection takes a file descriptor of the driver; the driver closes
further connections at once.
"""
_BACKLOG = 1_024
"""Maximum number of connections that wait in the kernel until the server accepts them. This number
must be large, because all tasks of a stage connect at once.
"""
_NAMED_MAX = 5
PIECES_MAX = 10_000
"""Largest number of lines in the report on a window; tasks send far fewer lines."""
_MALFORMED = (
    OSError, ValueError, zlib.error, KeyError, TypeError, OverflowError, RecursionError,
    asyncio.TimeoutError,
)  # fmt: skip
"""Errors that a malformed message can raise."""


class TaskEndedError(RedlineError):
    """A task failed, was lost or was silent, so the driver ended the load of all tasks."""


class TaskChannel:
    """The control channels to all tasks of one trial, and the reports of the tasks.

    Args:
        host, port: address of the control server.
        tasks: number of tasks with producers.
        post: runs a call on the server's thread.
        consumer_tasks: number of tasks with consumers.
        certificate: the driver's certificate as PEM; tasks trust only this certificate.

    Attributes:
        address: the address to which tasks connect.
        begin_after_s: length to which the driver shortened the warm-up [s]; None for the planned
            length.
        open_timeout_s: longest accepted time from the first ready task to the last ready task [s].
        failure: the error of a task or a watcher that ended the load early; None without an error.
        windows: window → task → the task's packed report, for windows that have ended.
        token_line: the line with the last token for the brokers; empty without a token.
    """

    def __init__(
        self,
        host: str,
        port: int,
        tasks: int,
        post: Callable[[Callable[[], None]], object],
        consumer_tasks: int = 0,
        certificate: str = "",
    ) -> None:
        self.address = ControlAddress(host, port, secrets.token_hex(16), certificate)
        self._tasks = tasks
        self._consumer_tasks = consumer_tasks
        self._post = post
        self._starts_s: dict[int, float] = {}
        self._acked = AckedProgress(tasks)
        self._written: dict[int, int] = {}
        self._refused: dict[int, int] = {}
        self._ready: dict[int, TaskReady] = {}
        self._writers: dict[asyncio.StreamWriter, int] = {}
        self._admitted: set[int] = set()
        self._done: set[int] = set()
        self._silent_beats: dict[int, int] = {}
        self._beats_since_ready = 0
        self._missing = ""
        self.open_timeout_s = math.inf
        self._has_ended = False
        self._has_failed = threading.Event()
        self.begin_after_s: float | None = None
        self.token_line = b""
        self.failure: Exception | None = None
        self.windows: dict[int, dict[int, str]] = defaultdict(dict)
        self._pieces: dict[int, list[str]] = defaultdict(list)

    @property
    def expected_tasks(self) -> int:
        """Number of tasks that connect to the driver: all tasks with producers or consumers."""
        return self._tasks + self._consumer_tasks

    @property
    def start_s(self) -> float | None:
        """Start of the load [s since the epoch]; None until all tasks are ready."""
        return max(self._starts_s.values(), default=None)

    def acked(self) -> list[tuple[float, int]]:
        """The acknowledged records of all tasks over time, as pairs: the time since the window's
        start [s], and the number of records acknowledged until this time.

        The result is sorted by time, and contains only times for which every task has sent a
        report.
        """
        return self._acked.of_current_window()

    @property
    def written(self) -> int:
        """Records acknowledged since the start of the load, according to the tasks' last
        reports.
        """
        return sum(list(self._written.values()))

    @property
    def refused(self) -> int:
        """Errors in the answers to produce requests, according to the tasks' last reports."""
        return sum(list(self._refused.values()))

    def take_window(self, number: int) -> list[TaskReport] | None:
        """Remove and return all tasks' reports on an ended window, or return None while a report is
        missing.
        """
        if len(self.windows.get(number, {})) < self.expected_tasks:
            return None
        # Parsed on the caller's thread, because the server's thread may have 500 tasks to serve.
        return [parse_window(each) for each in self.windows.pop(number).values()]

    def end_after(self, window_s: float) -> None:
        """End the measured window once it has this length, which must be longer than the window's
        present length.

        Args:
            window_s: length of the window [s].
        """
        self._send_soon(end_after_s=window_s)

    def end_climb_after(self, load_s: float) -> None:
        """Start no further producers once the load has lasted for this time.

        Args:
            load_s: time since the start of the load [s].
        """
        self._send_soon(climb_end_s=load_s)

    def begin_after(self, warmup_s: float) -> None:
        """Begin the measured window as soon as the load has lasted for `warmup_s`. `warmup_s` must
        be longer than the load has lasted until now.

        Args:
            warmup_s: time from the start of the load to the start of the window [s].
        """
        self.begin_after_s = warmup_s
        self._send_soon(begin_after_s=warmup_s)

    def phases_now(self, phases: Phases) -> Phases:
        """The phases of the load, with the present length of its warm-up."""
        if self.begin_after_s is None:
            return phases
        return replace(
            phases, warmup_s=self.begin_after_s, ramp_up_s=min(phases.ramp_up_s, self.begin_after_s)
        )

    def renew_token(self, token: str, good_until_s: float | None) -> None:
        """Send a new token to all tasks, also to tasks that connect later; a known token is not
        sent again.

        Args:
            token: the token for the brokers.
            good_until_s: time at which the token expires [s since the epoch]; None if unknown.
        """
        text = _line(token=token, good_until_s=good_until_s)
        if text != self.token_line:
            self.token_line = text
            self._post(lambda: self.send(text))

    def _send_soon(self, **message: object) -> None:
        text = _line(**message)
        self._post(lambda: self.send(text))

    def end_now(self) -> None:
        """Close the channels to all tasks, which ends their load at once, without reports."""
        self._post(self._end)

    def fail(self, why: Exception) -> None:
        """End the load of all tasks at once, because the load cannot be completed any more."""
        self.failure = self.failure or why
        self._has_failed.set()
        self.end_now()

    def await_failure(self, timeout_s: float) -> None:
        """Wait for at most this time [s] until a failure is noticed."""
        if not self._has_ended:
            self._has_failed.wait(timeout_s)

    def receive(self, task: int, message: dict[str, Any]) -> None:
        """Process a message of a task."""
        if task in self._silent_beats:
            self._silent_beats[task] = 0
        if "failed" in message:
            self._fail(task, f"failed: {message['failed']}")
        if "ready" in message:
            self._ready[task] = TaskReady.parse(message["ready"])
            if self._missing or len(self._ready) == self.expected_tasks:
                self._send_start_signals()
        if "start_s" in message:
            self._starts_s[task] = float(message["start_s"])
            self._silent_beats[task] = 0
        self._receive_progress(task, message)
        if "over" in message or "done" in message:
            self._silent_beats.pop(task, None)
        if "done" in message:
            self._done.add(task)

    def _receive_progress(self, task: int, message: dict[str, Any]) -> None:
        if "acked" in message:
            self._acked.add(task, float(message["at_s"]), int(message["acked"]))
        if "written" in message:
            self._written[task] = int(message["written"])
            self._refused[task] = int(message.get("refused", 0))
        if "window" in message:
            self._receive_window(task, message)

    def _send_start_signals(self) -> None:
        signals = start_signals(self._ready, time.time(), self._missing)
        for writer, task in self._writers.items():
            if task in signals:
                writer.write(_line(agreed=asdict(signals[task])))

    def _missing_tasks(self) -> str:
        """A sentence with the tasks that are not ready after `open_timeout_s`."""
        hosts = {task: f"on {_host_of(writer)}" for writer, task in self._writers.items()}
        missing = [
            f"task {task} {hosts.get(task, 'without a connection to the driver')}"
            for task in range(self.expected_tasks)
            if task not in self._ready
        ]
        return (
            f"{self.open_timeout_s:.0f} s after the first task was ready, other tasks "
            f"were not ready: {format_some(missing, _NAMED_MAX)}; check their executors, and the "
            "brokers' limits on new connections"
        )

    def _receive_window(self, task: int, message: dict[str, Any]) -> None:
        pieces, piece = self._pieces[task], str(message["piece"])
        pieces.append(piece)
        if len(pieces) > PIECES_MAX or len(piece) > PIECE_LENGTH:
            raise ValueError(
                f"the report on a window has more than {PIECES_MAX} lines, or a line of more than "
                f"{PIECE_LENGTH} characters"
            )
        if not int(message["left"]):
            self._acked.end_window(task)
            packed = "".join(pieces)
            unpacked_window(packed)  # raises if the text is not a report
            self.windows[int(message["window"])][task] = packed
            pieces.clear()

    def admit(self, task: int, writer: asyncio.StreamWriter) -> bool:
        """Admit a task with the right token; return False after the load, or if the task is known
        already.
        """
        if self._has_ended or task in self._admitted or not 0 <= task < self.expected_tasks:
            return False
        self._admitted.add(task)
        self._writers[writer] = task
        return True

    def remove(self, writer: asyncio.StreamWriter) -> None:
        """Remove a disconnected task; if its load has not ended, end the load of all tasks."""
        task = self._writers.pop(writer, None)
        if task is not None and task not in self._done and not self._has_ended:
            why = "was lost during the load: its executor or its Python process ended"
            self._fail(task, why, _host_of(writer))

    def _fail(self, task: int, why: str, host: str = "an unknown host") -> None:
        place = self._ready[task].host if task in self._ready else host
        name = f"task {task} on {place}"
        self.fail(TaskEndedError(f"{name} {why}; the load was ended on all executors"))

    def beat(self) -> None:
        """Send a heartbeat to all tasks, and end the load if a task is silent during the load.

        The load also ends if a task is not ready within `open_timeout_s` after the first ready
        task.
        """
        self.send(b"\n")
        if 0 < len(self._ready) < self.expected_tasks:
            self._beats_since_ready += 1
            is_late = self._beats_since_ready * _HEARTBEAT_S > self.open_timeout_s
            if is_late and not self._missing:
                self._missing = self._missing_tasks()
                self._send_start_signals()
        for task in self._silent_beats:
            self._silent_beats[task] += 1
            if self._silent_beats[task] * _HEARTBEAT_S > SILENCE_MAX_S:
                self._fail(task, f"sent nothing for {SILENCE_MAX_S:.0f} s during the load")

    def send(self, text: bytes) -> None:
        """Send a line to all tasks; must be called on the server's thread."""
        for writer in self._writers:
            writer.write(text)

    async def close(self) -> None:
        """Close the channels to all running tasks, which ends their load."""
        self._end()

    def _end(self) -> None:
        self._has_ended = True
        for writer in list(self._writers):
            writer.close()


def _host_of(writer: asyncio.StreamWriter) -> str:
    host: str = (writer.get_extra_info("peername") or ("an unknown host",))[0]
    return host


def control_of(spark: SparkSession) -> ControlServer:
    """Start a control server at the address under which executors reach Spark's driver.

    Spark's settings determine the address: `spark.driver.host`, `spark.driver.bindAddress` and, if
    a firewall requires a fixed port, `spark.redline.control.port`.

    Raises:
        ConfigError: the port is not a port number, or is in use.
    """
    conf = spark.sparkContext.getConf()
    port = conf.get("spark.redline.control.port") or "0"
    if not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(
            f"spark.redline.control.port is {port!r}; expected a port number from 0 to 65535, "
            "0 for any free port"
        )
    host = conf.get("spark.driver.host") or socket.gethostname()
    return ControlServer(host, conf.get("spark.driver.bindAddress") or host, int(port))


class ControlServer(AbstractContextManager["ControlServer"]):
    """A server for control channels, on its own thread until the context manager closes it.

    Args:
        host: the driver's address that executors use.
        bind: the address to listen on.
        port: the port to listen on; 0 for any free port.

    Attributes:
        post: runs a call on the server's thread.
    """

    def __init__(self, host: str, bind: str, port: int = 0) -> None:
        self._host = host
        self._channels: dict[str, TaskChannel] = {}
        self._unidentified = 0
        self._has_logged_unidentified = False
        self._tls, self._certificate = own_certificate()
        self._loop = asyncio.new_event_loop()
        self.post = self._loop.call_soon_threadsafe
        self._served: set[asyncio.Task[None]] = set()
        try:
            family = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)[0][0]
            self._listener = socket.create_server((bind, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            self._loop.close()
            raise ConfigError(
                f"the driver cannot listen on {bind}:{port} for its executors ({error}); "
                "free the port, or set spark.redline.control.port to another port"
            ) from error
        self._listener.setblocking(False)
        self._port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, name="redline-control", daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def channel(self, tasks: int, consumer_tasks: int = 0) -> Iterator[TaskChannel]:
        """Open the control channels to the tasks of one trial; the end of the block ends their
        load.

        Raises:
            ConfigError: the driver's host has too few file descriptors for all tasks.
        """
        ensure_descriptors(2 * (tasks + consumer_tasks) + UNIDENTIFIED_MAX)
        channel = TaskChannel(
            self._host, self._port, tasks, self.post, consumer_tasks, self._certificate
        )
        self._channels[channel.address.token] = channel
        try:
            yield channel
        finally:
            del self._channels[channel.address.token]
            if not self._loop.is_closed():
                self._call(channel.close())

    def close(self) -> None:
        """Stop listening; tasks that still run end their load."""
        if self._loop.is_closed():
            return
        for channel in list(self._channels.values()):
            self._call(channel.close())
        self.post(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- on the thread of the server ----------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        always = [self._loop.create_task(each()) for each in (self._send_heartbeats, self._accept)]
        self._loop.run_forever()
        self._loop.run_until_complete(self._end(always))
        self._listener.close()

    async def _end(self, always: Sequence[asyncio.Task[None]]) -> None:
        await _cancelled(always)
        for _ in range(2):  # a transport can be closed only after it was connected to its protocol
            await asyncio.sleep(0)
        await _cancelled([*self._served])
        await asyncio.sleep(0)  # lets aborted transports close

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            for channel in list(self._channels.values()):
                channel.beat()

    async def _accept(self) -> None:
        while True:
            try:
                sock, _ = await self._loop.sock_accept(self._listener)
            except OSError as error:  # such as too many open files
                _log.info("a connection could not be accepted: %s", error)
                await asyncio.sleep(_HEARTBEAT_S)
                continue
            expected = sum(channel.expected_tasks for channel in self._channels.values())
            if self._unidentified >= UNIDENTIFIED_MAX + 2 * expected:
                sock.close()
                continue
            self._unidentified += 1
            task = self._loop.create_task(self._serve(sock))
            self._served.add(task)
            task.add_done_callback(self._served.discard)

    async def _identify(
        self, sock: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, dict[str, Any]]:
        """Perform the TLS handshake, and read the first message with the task and its token."""
        loop, reader = self._loop, asyncio.StreamReader(_LINE_BYTES_MAX)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, sock, ssl=self._tls)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            return reader, writer, _message(await reader.readline())
        except BaseException:
            transport.abort()
            raise

    async def _serve(self, sock: socket.socket) -> None:
        try:
            reader, writer, first = await asyncio.wait_for(self._identify(sock), IDENTIFICATION_S)
        except _MALFORMED as error:
            sock.close()
            if not self._has_logged_unidentified:
                _log.info("a connection ended with %s: %s", type(error).__name__, error)
            self._has_logged_unidentified = True
            return
        finally:
            self._unidentified -= 1
        try:
            await self._converse(reader, writer, first)
            if not writer.is_closing():  # after a second close, asyncio's abort() does nothing
                writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        finally:
            writer.transport.abort()

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: dict[str, Any]
    ) -> None:
        channel: TaskChannel | None = None
        try:
            task = int(first["task"])
            channel = self._channels.get(str(first["token"]))
            # Without a channel, the task belongs to a load that has ended.
            is_admitted = channel is not None and channel.admit(task, writer)
            writer.write(_line(admitted=is_admitted))
            if is_admitted and channel is not None:
                writer.write(channel.token_line)
            while is_admitted and channel is not None and (text := await reader.readline()):
                message = _message(text)
                if message.get("asks") == "clock":
                    writer.write(_line(clock_s=time.time()))
                channel.receive(task, message)
                is_admitted = "done" not in message
        except _MALFORMED as error:
            # The task died, or the connection is not from a task; no answer is needed.
            _log.info("a connection ended with %s: %s", type(error).__name__, error)
        finally:
            if channel is not None:
                channel.remove(writer)


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def own_certificate() -> tuple[ssl.SSLContext, str]:
    """Create a TLS context with a new key, and return it with its self-signed certificate
    as PEM.
    """
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(timezone.utc)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kafka-redline driver")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=_CERTIFICATE_DAYS))  # clocks differ
        .not_valid_after(now + timedelta(days=_CERTIFICATE_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:  # Python reads keys from files only
        file.write(pem)
        file.write(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        file.flush()
        context.load_cert_chain(file.name)
    return context, pem.decode()


def _line(**message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _message(text: bytes) -> dict[str, Any]:
    message = json.loads(text)
    if not isinstance(message, dict):
        raise ValueError(f"expected a JSON object, not {text[:40]!r}")
    return message
