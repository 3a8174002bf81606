"""The driver's end of the control channels to the tasks of a trial.

Tasks connect by `jobs.engine.task.control_channel`, over TLS with a certificate that the driver
makes for itself. They report when they are ready, and receive the start signal when all are. They
report how much is acknowledged, and may ask for the driver's time; the driver may end the measured
window early, and sends new tokens for the brokers. Both sides send something at least every second
of the load, so that each notices when the other is gone for any reason. A task that fails,
disconnects before it is done, or is silent under load ends the load of all.

The records that all tasks of a load have acknowledged over time, from the reports of each.
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
from contextlib import contextmanager, suppress
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
    """Sums of the tasks' reports, one for each moment that every task has reported.

    Reports are added up as soon as all tasks have made them, so that neither memory nor the time of
    a look grows with the number of tasks. Tasks count from the start of each window.

    Args:
        tasks: number of tasks with producers, numbered from 0; those of other tasks do not count.
    """

    def __init__(self, tasks: int) -> None:
        self._window_of = [0] * tasks
        self._windows = {0: _Window(tasks)}

    def add(self, task: int, at_s: float, records: int) -> None:
        """Add a report of a task on its current window.

        Args:
            at_s: time since the start of the window [s].
            records: records acknowledged in it so far.
        """
        if task < len(self._window_of):
            self._of(self._window_of[task]).add(task, at_s, records)

    def end_window(self, task: int) -> None:
        """Note that a task has ended its window: its further reports are on the next one."""
        if task >= len(self._window_of):
            return
        self._window_of[task] += 1
        ended = min(self._window_of)
        self._windows = {n: each for n, each in self._windows.items() if n >= ended}

    def of_current_window(self) -> list[tuple[float, int]]:
        """(seconds into the window, records acknowledged in it so far), oldest first.

        The window is the latest one on which all tasks have reported. Any thread may call this.
        """
        known = {number: each for number, each in list(self._windows.items()) if each.sums}
        return list(known[max(known)].sums) if known else []

    def _of(self, number: int) -> _Window:
        if number not in self._windows:
            self._windows = {**self._windows, number: _Window(len(self._window_of))}
        return self._windows[number]


class _Window:
    """The reports on one window.

    Attributes:
        sums: (seconds into the window, records) of the moments that all tasks have reported.
    """

    def __init__(self, tasks: int) -> None:
        self.sums: list[tuple[float, int]] = []
        self._pending: list[deque[tuple[float, int]]] = [deque() for _ in range(tasks)]
        self._missing = tasks

    def add(self, task: int, at_s: float, records: int) -> None:
        """Add a report, and sum up the oldest ones where every task has made one."""
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
"""Longest line of a task [B]: a problem of `PROBLEM_LENGTH` characters, each escaped in JSON."""
_CERTIFICATE_DAYS = 3_650
IDENTIFICATION_S = 5.0
"""The driver closes a connection that has not identified itself within this time [s]."""
UNIDENTIFIED_MAX = 64
"""Connections that have not identified themselves yet, at most, besides twice the expected tasks:
each takes a file descriptor of the driver, which closes further ones at once."""
_BACKLOG = 1_024
"""Connections that the kernel accepts before the server does; the tasks of a stage connect at
once."""
_NAMED_MAX = 5
PIECES_MAX = 10_000
"""Lines of a window's report at most: far more than any task sends."""
_MALFORMED = (
    OSError, ValueError, zlib.error, KeyError, TypeError, OverflowError, RecursionError,
    asyncio.TimeoutError,
)  # fmt: skip
"""Errors that a malformed message can raise."""


class TaskEndedError(RedlineError):
    """A task failed, was lost or fell silent, which ended the load of all."""


class TaskChannel:
    """The control channels to all tasks of one trial, with what the tasks have reported.

    Args:
        tasks: number of tasks with producers.
        post: hands a call over to the server's thread.
        consumer_tasks: number of tasks with consumers.
        certificate: the driver's certificate as PEM, the only one that tasks trust.

    Attributes:
        address: where tasks connect.
        begin_after_s: length of the warm-up that the driver set during it; None for the planned
            one [s].
        open_timeout_s: longest time from the first ready task to the last one [s].
        failure: what ended the load before its time: a task, or a watcher of the load; None else.
        windows: window → task → its packed report, for windows that have ended.
        token_line: the line with the last token for the brokers; empty without one.
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
        """Number of tasks that connect, with producers or consumers."""
        return self._tasks + self._consumer_tasks

    @property
    def start_s(self) -> float | None:
        """Start of the load [s since the epoch]; None until all tasks are ready."""
        return max(self._starts_s.values(), default=None)

    def acked(self) -> list[tuple[float, int]]:
        """(seconds into the window, records acknowledged in it so far) of all tasks together.

        Holds only moments that every task has reported, oldest first.
        """
        return self._acked.of_current_window()

    @property
    def written(self) -> int:
        """Records acknowledged since the start of the load, as tasks last reported."""
        return sum(list(self._written.values()))

    @property
    def refused(self) -> int:
        """Answers to produce requests that were errors, as tasks last reported."""
        return sum(list(self._refused.values()))

    def take_window(self, number: int) -> list[TaskReport] | None:
        """Take all tasks' reports of a window that has ended; None while one is missing."""
        if len(self.windows.get(number, {})) < self.expected_tasks:
            return None
        # Read here, on the caller's thread: the server's thread has 500 tasks to serve meanwhile.
        return [parse_window(each) for each in self.windows.pop(number).values()]

    def end_after(self, window_s: float) -> None:
        """End the measured window when it has lasted so long, which must lie ahead [s]."""
        self._send_soon(end_after_s=window_s)

    def end_climb_after(self, load_s: float) -> None:
        """Let no further producer begin once the load has lasted so long [s]."""
        self._send_soon(climb_end_s=load_s)

    def begin_after(self, warmup_s: float) -> None:
        """Begin the measured window when the load has lasted so long, which must lie ahead [s]."""
        self.begin_after_s = warmup_s
        self._send_soon(begin_after_s=warmup_s)

    def phases_now(self, phases: Phases) -> Phases:
        """The phases of the load, with a warm-up that the driver has cut."""
        if self.begin_after_s is None:
            return phases
        return replace(
            phases, warmup_s=self.begin_after_s, ramp_up_s=min(phases.ramp_up_s, self.begin_after_s)
        )

    def renew_token(self, token: str, good_until_s: float | None) -> None:
        """Send a token that is new to all tasks, also to those that connect later.

        Args:
            good_until_s: end of the token, if it is known [s since the epoch].
        """
        text = _line(token=token, good_until_s=good_until_s)
        if text != self.token_line:
            self.token_line = text
            self._post(lambda: self.send(text))

    def _send_soon(self, **message: object) -> None:
        text = _line(**message)
        self._post(lambda: self.send(text))

    def end_now(self) -> None:
        """Close the channels to all tasks, which ends their load at once and without reports."""
        self._post(self._end)

    def fail(self, why: Exception) -> None:
        """End the load of all tasks at once, as it cannot become whole any more."""
        self.failure = self.failure or why
        self._has_failed.set()
        self.end_now()

    def await_failure(self, timeout_s: float) -> None:
        """Wait at most so long for the loss of a task to be noticed [s]."""
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
        """The tasks that are not ready after `open_timeout_s`, in one sentence."""
        hosts = {task: f"on {_host_of(writer)}" for writer, task in self._writers.items()}
        missing = [
            f"task {task} {hosts.get(task, 'without a connection to the driver')}"
            for task in range(self.expected_tasks)
            if task not in self._ready
        ]
        return (
            f"{self.open_timeout_s:.0f} s after the first task was ready, others were still "
            f"opening connections: {format_some(missing, _NAMED_MAX)}; look at their "
            "executors, and at the brokers' limits on new connections"
        )

    def _receive_window(self, task: int, message: dict[str, Any]) -> None:
        pieces, piece = self._pieces[task], str(message["piece"])
        pieces.append(piece)
        if len(pieces) > PIECES_MAX or len(piece) > PIECE_LENGTH:
            raise ValueError(f"a window's report is larger than {PIECES_MAX} × {PIECE_LENGTH}")
        if not int(message["left"]):
            self._acked.end_window(task)
            packed = "".join(pieces)
            unpacked_window(packed)  # raises for what is no report
            self.windows[int(message["window"])][task] = packed
            pieces.clear()

    def admit(self, task: int, writer: asyncio.StreamWriter) -> bool:
        """Admit a task that has shown the token; False after the load, or for the second time."""
        if self._has_ended or task in self._admitted or not 0 <= task < self.expected_tasks:
            return False
        self._admitted.add(task)
        self._writers[writer] = task
        return True

    def remove(self, writer: asyncio.StreamWriter) -> None:
        """Remove a task that has disconnected; in the middle of the load, end the load of all."""
        task = self._writers.pop(writer, None)
        if task is not None and task not in self._done and not self._has_ended:
            why = "was lost in the middle of the load: its executor or its Python process ended"
            self._fail(task, why, _host_of(writer))

    def _fail(self, task: int, why: str, host: str = "an unknown host") -> None:
        place = self._ready[task].host if task in self._ready else host
        name = f"task {task} on {place}"
        self.fail(TaskEndedError(f"{name} {why}; the load was ended on all executors"))

    def beat(self) -> None:
        """Send a heartbeat to all tasks, and end the load if one is silent in the middle of it.

        A load also ends where some task is not ready `open_timeout_s` after the first one.
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
                self._fail(
                    task, f"sent nothing for {SILENCE_MAX_S:.0f} s in the middle of the load"
                )

    def send(self, text: bytes) -> None:
        """Send this to all tasks; to be called on the server's thread."""
        for writer in self._writers:
            writer.write(text)

    async def close(self) -> None:
        """Close the channels to tasks that still run, which ends their load."""
        self._end()

    def _end(self) -> None:
        self._has_ended = True
        for writer in list(self._writers):
            writer.close()


def _host_of(writer: asyncio.StreamWriter) -> str:
    host: str = (writer.get_extra_info("peername") or ("an unknown host",))[0]
    return host


def control_of(spark: SparkSession) -> ControlServer:
    """A server at an address where this session's executors reach Spark's own driver, too.

    Spark's settings decide: `spark.driver.host`, `spark.driver.bindAddress`, and
    `spark.redline.control.port` where a firewall needs a fixed port.

    Raises:
        ConfigError: the port is not a port number, or is taken.
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


class ControlServer:
    """A server for control channels, on a thread of its own until it is closed; a context manager.

    Args:
        host: the driver's address as executors know it.
        bind: the address to listen on.
        port: the port to listen on; 0 for any free one.
    """

    def __init__(self, host: str, bind: str, port: int = 0) -> None:
        self._host = host
        self._channels: dict[str, TaskChannel] = {}
        self._unidentified = 0
        self._has_logged_unidentified = False
        self._tls, self._certificate = own_certificate()
        self._loop = asyncio.new_event_loop()
        self._served: set[asyncio.Task[None]] = set()
        try:
            family = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)[0][0]
            self._listener = socket.create_server((bind, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            self._loop.close()
            raise ConfigError(
                f"the driver cannot listen on {bind}:{port} for its executors ({error}); "
                "free the port or set spark.redline.control.port to another"
            ) from error
        self._listener.setblocking(False)
        self._port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, name="redline-control", daemon=True)
        self._thread.start()

    def __enter__(self) -> ControlServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def channel(self, tasks: int, consumer_tasks: int = 0) -> Iterator[TaskChannel]:
        """The control channels to the tasks of one trial; the end of the block ends their load.

        Raises:
            ConfigError: the driver's host does not allow a connection for each task.
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

    def post(self, work: Callable[[], None]) -> None:
        """Hand a call over to the server's thread."""
        self._loop.call_soon_threadsafe(work)

    def close(self) -> None:
        """Stop listening; tasks that still run end their load."""
        if self._loop.is_closed():
            return
        for channel in list(self._channels.values()):
            self._call(channel.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
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
        for _ in range(2):  # a new transport can be closed when it has met its protocol
            await asyncio.sleep(0)
        await _cancelled([*self._served])
        await asyncio.sleep(0)  # in which aborted transports close

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
        """Make the TLS handshake, and read the first message, which names a task and its token."""
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
            # Without a channel, the task is of a load that has ended.
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
            # A task died, or the connection is not a task's: neither needs an answer.
            _log.info("a connection ended with %s: %s", type(error).__name__, error)
        finally:
            if channel is not None:
                channel.remove(writer)


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def own_certificate() -> tuple[ssl.SSLContext, str]:
    """A context with a new key, and its self-signed certificate as PEM, which tasks compare."""
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
