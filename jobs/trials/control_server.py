"""The driver's end of the control channels to the tasks of a trial.

Tasks connect by `jobs.engine.task.control_channel`. They report when they are ready, and receive
the start signal when all are. They report how much is acknowledged, and may ask for the driver's
time; the driver may end the measured window early. It sends a heartbeat every second, so that tasks
notice when it is gone for any reason. A task that disconnects before it is done is lost, and ends
the load of all.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import socket
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from jobs.engine.network.connections import ensure_descriptors
from jobs.engine.task.control_channel import ControlAddress, parse_window, unpacked_window
from jobs.engine.task.start_signal import TaskReady, start_signals
from jobs.trials.acked_progress import AckedProgress
from metrics.common.errors import ConfigError
from metrics.traffic.pattern import Phases
from metrics.trial.task import TaskReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_HEARTBEAT_S = 1.0
_LINE_BYTES_MAX = 4_096
IDENTIFICATION_S = 5.0
"""The driver closes a connection that has not identified itself within this time [s]."""
UNIDENTIFIED_MAX = 64
"""Connections that have not identified themselves yet, at most, besides twice the expected tasks:
each takes a file descriptor of the driver, which closes further ones at once."""
_BACKLOG = 1_024
"""Connections that the kernel accepts before the server does; the tasks of a stage connect at
once."""
PIECES_MAX = 10_000
"""Lines of a window's report at most: far more than any task sends."""
_MALFORMED = (OSError, ValueError, zlib.error, KeyError, TypeError, OverflowError, RecursionError)
"""Errors that a malformed message can raise."""


class TaskChannel:
    """The control channels to all tasks of one trial, with what the tasks have reported.

    Args:
        tasks: number of tasks with producers.
        post: hands a call over to the server's thread.
        consumer_tasks: number of tasks with consumers.

    Attributes:
        address: where tasks connect.
        begin_after_s: length of the warm-up that the driver set during it; None for the planned
            one [s].
        lost_tasks: tasks that disconnected in the middle of the load, with their hosts.
        windows: window → task → its packed report, for windows that have ended.
    """

    def __init__(
        self,
        host: str,
        port: int,
        tasks: int,
        post: Callable[[Callable[[], None]], object],
        consumer_tasks: int = 0,
    ) -> None:
        self.address = ControlAddress(host, port, secrets.token_hex(16))
        self._tasks = tasks
        self._consumer_tasks = consumer_tasks
        self._post = post
        self._starts_s: dict[int, float] = {}
        self._acked = AckedProgress(tasks)
        self._written: dict[int, int] = {}
        self._ready: dict[int, TaskReady] = {}
        self._writers: dict[asyncio.StreamWriter, int] = {}
        self._admitted: set[int] = set()
        self._done: set[int] = set()
        self._has_ended = False
        self._has_lost = threading.Event()
        self.begin_after_s: float | None = None
        self.lost_tasks: list[str] = []
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

    def _send_soon(self, **message: float) -> None:
        text = json.dumps(message).encode() + b"\n"
        self._post(lambda: self.send(text))

    def end_now(self) -> None:
        """Close the channels to all tasks, which ends their load at once and without reports."""
        self._post(self._end)

    def await_lost_task(self, timeout_s: float) -> None:
        """Wait at most so long for a task to disconnect in the middle of the load [s]."""
        if not self._has_ended:
            self._has_lost.wait(timeout_s)

    def receive(self, task: int, message: dict[str, Any]) -> None:
        """Process a message of a task."""
        if "ready" in message:
            self._ready[task] = TaskReady.parse(message["ready"])
            if len(self._ready) == self.expected_tasks:
                self._send_start_signals()
        if "start_s" in message:
            self._starts_s[task] = float(message["start_s"])
        if "acked" in message:
            self._acked.add(task, float(message["at_s"]), int(message["acked"]))
        if "written" in message:
            self._written[task] = int(message["written"])
        if "window" in message:
            self._receive_window(task, message)
        if "done" in message:
            self._done.add(task)

    def _send_start_signals(self) -> None:
        signals = start_signals(self._ready, time.time())
        for writer, task in self._writers.items():
            writer.write(json.dumps({"agreed": asdict(signals[task])}).encode() + b"\n")

    def _receive_window(self, task: int, message: dict[str, Any]) -> None:
        pieces = self._pieces[task]
        pieces.append(str(message["piece"]))
        if len(pieces) > PIECES_MAX:
            raise ValueError(f"the report of a window is larger than {PIECES_MAX} lines")
        if not int(message["left"]):
            self._acked.end_window(task)
            packed = "".join(pieces)
            unpacked_window(packed)  # raises for what is no report
            self.windows[int(message["window"])][task] = packed
            pieces.clear()

    def admit(self, task: int, writer: asyncio.StreamWriter) -> bool:
        """Admit a task that has shown the token; False after the load, or for the second time."""
        if self._has_ended or task in self._admitted:
            return False
        self._admitted.add(task)
        self._writers[writer] = task
        return True

    def remove(self, writer: asyncio.StreamWriter) -> None:
        """Remove a task that has disconnected; in the middle of the load, end the load of all."""
        task = self._writers.pop(writer, None)
        if task is None or task in self._done or self._has_ended:
            return
        host = (writer.get_extra_info("peername") or ("an unknown host",))[0]
        self.lost_tasks.append(f"task {task} on {host}")
        self._has_lost.set()
        self._end()

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
        self._loop = asyncio.new_event_loop()
        try:
            self._server = self._loop.run_until_complete(
                asyncio.start_server(
                    self._serve, bind, port, limit=_LINE_BYTES_MAX, backlog=_BACKLOG
                )
            )
        except OSError as error:
            self._loop.close()
            raise ConfigError(
                f"the driver cannot listen on {bind}:{port} for its executors ({error}); "
                "free the port or set spark.redline.control.port to another"
            ) from error
        self._port: int = self._server.sockets[0].getsockname()[1]
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
        channel = TaskChannel(self._host, self._port, tasks, self.post, consumer_tasks)
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
        self._call(self._stop_listening())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- on the thread of the server ----------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        heartbeat = self._loop.create_task(self._send_heartbeats())
        self._loop.run_forever()
        heartbeat.cancel()
        self._loop.run_until_complete(asyncio.gather(heartbeat, return_exceptions=True))

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            for channel in list(self._channels.values()):
                channel.send(b"\n")

    async def _stop_listening(self) -> None:
        self._server.close()
        for channel in list(self._channels.values()):
            await channel.close()

    async def _read_identification(self, reader: asyncio.StreamReader) -> dict[str, Any]:
        """Read the first message of a connection, which names its task and shows the token.

        Raises:
            ValueError: it does not arrive in time, or too many connections wait for theirs.
        """
        expected = sum(channel.expected_tasks for channel in list(self._channels.values()))
        others = self._unidentified
        if others >= UNIDENTIFIED_MAX + 2 * expected:
            raise ValueError(f"{others} other connections have not identified themselves")
        self._unidentified += 1
        try:
            return _message(await asyncio.wait_for(reader.readline(), IDENTIFICATION_S))
        except asyncio.TimeoutError:
            raise ValueError(f"silent for {IDENTIFICATION_S:g} s") from None
        finally:
            self._unidentified -= 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel: TaskChannel | None = None
        try:
            first = await self._read_identification(reader)
            asks_admission = first.get("asks") == "admission"
            channel = self._channels.get(str(first.get("token")))
            if channel is None:
                if asks_admission:  # of a load that has ended
                    writer.write(json.dumps({"admitted": False}).encode() + b"\n")
                return
            task = int(first["task"])
            if asks_admission:
                is_admitted = channel.admit(task, writer)
                writer.write(json.dumps({"admitted": is_admitted}).encode() + b"\n")
                if not is_admitted:
                    return
            while text := await reader.readline():
                message = _message(text)
                if message.get("asks") == "clock":
                    writer.write(json.dumps({"clock_s": time.time()}).encode() + b"\n")
                channel.receive(task, message)
        except _MALFORMED as error:
            # A task died, or the connection is not a task's: neither needs an answer.
            if channel is not None or not self._has_logged_unidentified:
                _log.info("a connection ended with %s: %s", type(error).__name__, error)
            self._has_logged_unidentified = self._has_logged_unidentified or channel is None
        finally:
            if channel is not None:
                channel.remove(writer)
            writer.close()


def _message(text: bytes) -> dict[str, Any]:
    message = json.loads(text)
    if not isinstance(message, dict):
        raise ValueError(f"expected a JSON object, not {text[:40]!r}")
    return message
