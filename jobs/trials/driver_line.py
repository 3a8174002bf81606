"""The driver's end of the lines to the tasks of a trial (`jobs.engine.task.driver_line`).

Tasks say when they are ready, and hear when all are. They say how much is acknowledged, and may
ask for the driver's time; the driver may end the measured window early. While the driver lives it
says something every second, so that tasks notice when it is gone, whatever took it away. A task
that hangs up before it is done is lost, and with it the load of all.
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
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING, Any

from jobs.engine.task.agreement import Ready, agreements
from jobs.engine.task.driver_line import ControlAddress, report_in
from metrics.common.errors import ConfigError
from metrics.trial.task import TaskReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_HEARTBEAT_S = 1.0
_LINE_BYTES_MAX = 4_096
GREETING_S = 5.0
"""Whoever calls and does not say who it is for so long is hung up on [s]."""
STRANGERS_MAX = 64
"""Callers that have not said yet who they are; more are hung up on at once, as each takes a
descriptor of the driver."""
PIECES_MAX = 10_000
"""Lines of a window's account, which no task comes near."""
_NONSENSE = (OSError, ValueError, zlib.error, KeyError, TypeError, OverflowError, RecursionError)
"""What a message can raise that no task of ours would send."""


class TrialLine:
    """The lines to the tasks of one trial: what they said, and the way to end their window.

    Args:
        tasks: how many tasks with producers the trial has.
        post: hands a message to the server's thread, which says it to all tasks.
        readers: how many tasks with consumers it has.

    Attributes:
        address: what tasks call.
        lost: where tasks were that hung up in the middle of the load.
        windows: window → task → its account of it, of those that are over.
    """

    def __init__(
        self,
        host: str,
        port: int,
        tasks: int,
        post: Callable[[Callable[[], None]], object],
        readers: int = 0,
    ) -> None:
        self.address = ControlAddress(host, port, secrets.token_hex(16))
        self._tasks = tasks
        self._readers = readers
        self._post = post
        self._starts_s: dict[int, float] = {}
        self._acked: dict[int, list[tuple[float, int]]] = {}
        self._written: dict[int, int] = {}
        self._ready: dict[int, Ready] = {}
        self._writers: dict[asyncio.StreamWriter, int] = {}
        self._admitted: set[int] = set()
        self._done: set[int] = set()
        self._has_ended = False
        self._has_lost = threading.Event()
        self.lost: list[str] = []
        self.windows: dict[int, dict[int, TaskReport]] = defaultdict(dict)
        self._pieces: dict[int, list[str]] = defaultdict(list)

    @property
    def start_s(self) -> float | None:
        """When the load starts [s since the epoch]; None until the tasks have agreed."""
        return max(self._starts_s.values(), default=None)

    def acked(self) -> list[tuple[float, int]]:
        """(seconds into the window, records acknowledged in it so far), all tasks together.

        Only moments that every task has told of, oldest first.
        """
        told = [list(reports) for reports in self._acked.values()]
        if len(told) < self._tasks:
            return []
        return [
            (min(at_s for at_s, _ in reports), sum(records for _, records in reports))
            for reports in zip(*told, strict=False)
        ]

    @property
    def written(self) -> int:
        """Records acknowledged since the start of the load, as far as tasks have told."""
        return sum(list(self._written.values()))

    def window(self, number: int) -> list[TaskReport] | None:
        """All tasks' accounts of a window that is over, once; None while one is missing."""
        if len(self.windows.get(number, {})) < self._tasks + self._readers:
            return None
        return list(self.windows.pop(number).values())

    def end_after(self, window_s: float) -> None:
        """End the measured window so long after it began [s], which must lie ahead."""
        text = json.dumps({"end_after_s": window_s}).encode() + b"\n"
        self._post(lambda: self.send(text))

    def end_now(self) -> None:
        """Hang up on all tasks, which ends their load at once and leaves no account of it."""
        self._post(self._end)

    def await_lost(self, timeout_s: float) -> None:
        """Wait at most so long for a task to hang up in the middle of the load [s]."""
        if not self._has_ended:
            self._has_lost.wait(timeout_s)

    def hear(self, task: int, message: dict[str, Any]) -> None:
        """Take what a task said."""
        if "ready" in message:
            self._ready[task] = Ready.told(message["ready"])
            if len(self._ready) == self._tasks + self._readers:
                self._say_agreed()
        if "start_s" in message:
            self._starts_s[task] = float(message["start_s"])
        if "acked" in message:
            report = (float(message["at_s"]), int(message["acked"]))
            self._acked.setdefault(task, []).append(report)
        if "written" in message:
            self._written[task] = int(message["written"])
        if "window" in message:
            self._hear_window(task, message)
        if "done" in message:
            self._done.add(task)

    def _say_agreed(self) -> None:
        agreed = agreements(self._ready, time.time())
        for writer, task in self._writers.items():
            writer.write(json.dumps({"agreed": asdict(agreed[task])}).encode() + b"\n")

    def _hear_window(self, task: int, message: dict[str, Any]) -> None:
        pieces = self._pieces[task]
        pieces.append(str(message["piece"]))
        if len(pieces) > PIECES_MAX:
            raise ValueError(f"the account of a window is larger than {PIECES_MAX} lines")
        if not int(message["left"]):
            self._acked.pop(task, None)  # it counts from the start of each window
            self.windows[int(message["window"])][task] = report_in("".join(pieces))
            pieces.clear()

    def admit(self, task: int, writer: asyncio.StreamWriter) -> bool:
        """A task has shown its token; True for one that comes in time, and for the first time."""
        if self._has_ended or task in self._admitted:
            return False
        self._admitted.add(task)
        self._writers[writer] = task
        return True

    def dismiss(self, writer: asyncio.StreamWriter) -> None:
        """A task has hung up; in the middle of the load, that ends the load of all."""
        task = self._writers.pop(writer, None)
        if task is None or task in self._done or self._has_ended:
            return
        host = (writer.get_extra_info("peername") or ("an unknown host",))[0]
        self.lost.append(f"task {task} on {host}")
        self._has_lost.set()
        self._end()

    def send(self, text: bytes) -> None:
        """Say this to all tasks; on the server's thread."""
        for writer in self._writers:
            writer.write(text)

    async def hang_up(self) -> None:
        """Close the lines of tasks that still run, which ends their load."""
        self._end()

    def _end(self) -> None:
        self._has_ended = True
        for writer in list(self._writers):
            writer.close()


def control_of(spark: SparkSession) -> ControlServer:
    """A server where this session's executors can reach it, as Spark's own driver is.

    Spark's settings decide: `spark.driver.host`, `spark.driver.bindAddress`, and
    `spark.redline.control.port` where a firewall wants a fixed port.

    Raises:
        ConfigError: the port is no number or is taken.
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
    """Listens for tasks on a thread of its own until closed; a context manager.

    Args:
        host: the driver's address as executors know it.
        bind: the address to listen on.
        port: 0 for any that is free.
    """

    def __init__(self, host: str, bind: str, port: int = 0) -> None:
        self._host = host
        self._trials: dict[str, TrialLine] = {}
        self._strangers = 0
        self._has_told = False
        self._loop = asyncio.new_event_loop()
        try:
            self._server = self._loop.run_until_complete(
                asyncio.start_server(self._serve, bind, port, limit=_LINE_BYTES_MAX)
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def line(self, tasks: int, readers: int = 0) -> Iterator[TrialLine]:
        """A line for the tasks of one trial; left, none of them may go on."""
        post = self._loop.call_soon_threadsafe
        line = TrialLine(self._host, self._port, tasks, post, readers)
        self._trials[line.address.token] = line
        try:
            yield line
        finally:
            del self._trials[line.address.token]
            if not self._loop.is_closed():
                self._call(line.hang_up())

    def close(self) -> None:
        """Stop listening; tasks that still run end their load."""
        if self._loop.is_closed():
            return
        self._call(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- on the thread of the server ----------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        heartbeat = self._loop.create_task(self._beat())
        self._loop.run_forever()
        heartbeat.cancel()
        self._loop.run_until_complete(asyncio.gather(heartbeat, return_exceptions=True))

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            for line in list(self._trials.values()):
                line.send(b"\n")

    async def _shut(self) -> None:
        self._server.close()
        for line in list(self._trials.values()):
            await line.hang_up()

    async def _greeting(self, reader: asyncio.StreamReader) -> dict[str, Any]:
        """What a caller says first.

        Raises:
            ValueError: it says nothing in time, or there are too many who have not yet.
        """
        if self._strangers >= STRANGERS_MAX:
            raise ValueError(f"{STRANGERS_MAX} other callers have not said who they are")
        self._strangers += 1
        try:
            return _message(await asyncio.wait_for(reader.readline(), GREETING_S))
        except asyncio.TimeoutError:
            raise ValueError(f"silent for {GREETING_S:g} s") from None
        finally:
            self._strangers -= 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line: TrialLine | None = None
        try:
            greeting = await self._greeting(reader)
            line = self._trials.get(str(greeting.get("token")))
            if line is None:
                return
            task = int(greeting["task"])
            if greeting.get("asks") == "admission":
                is_admitted = line.admit(task, writer)
                writer.write(json.dumps({"admitted": is_admitted}).encode() + b"\n")
                if not is_admitted:
                    return
            while text := await reader.readline():
                message = _message(text)
                if message.get("asks") == "clock":
                    writer.write(json.dumps({"clock_s": time.time()}).encode() + b"\n")
                line.hear(task, message)
        except _NONSENSE as error:
            # A task that died, or a stranger: either way there is nobody to answer.
            if line is not None or not self._has_told:
                _log.info("a line ended with %s: %s", type(error).__name__, error)
            self._has_told = self._has_told or line is None
        finally:
            if line is not None:
                line.dismiss(writer)
            writer.close()


def _message(text: bytes) -> dict[str, Any]:
    message = json.loads(text)
    if not isinstance(message, dict):
        raise ValueError(f"expected a JSON object, not {text[:40]!r}")
    return message
