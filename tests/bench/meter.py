"""One repeat: the payload and the CPU time of a client process in a window."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import psutil

from metrics.common.errors import RedlineError
from tests.bench.cpu import cpu_s

START_DEADLINE_S = 120.0
"""Time without progress after which a client has failed, even on a busy machine [s]."""
_POLL_S = 0.05


class BenchError(RedlineError):
    """A client did not do its task."""


@dataclass(frozen=True)
class Mark:
    """Progress of a client at one time.

    Attributes:
        payload_bytes: payload until this time [B].
        cpu_s: CPU time of the client's process until this time [CPU-s].
    """

    at_s: float
    payload_bytes: int
    cpu_s: float


@dataclass(frozen=True)
class Window:
    """Durations of a measurement.

    Attributes:
        warm_s: unmeasured time from the first byte on [s].
        measure_s: longest measured time after it [s].
        warm_bytes: payload after which the measurement starts even before `warm_s`, for a client
            with a limited payload [B].
    """

    warm_s: float
    measure_s: float
    warm_bytes: float = math.inf


@dataclass(frozen=True)
class Repeat:
    """One repeat.

    Attributes:
        payload_bytes: payload that was moved [B].
        cpu_s: CPU time of the client [CPU-s].
        batches: its batches; 0 if they were not counted.
        late_ms: p99 of the time by which batches were sent late [ms]; None for other clients.
    """

    payload_bytes: int
    cpu_s: float
    seconds: float
    batches: int = 0
    late_ms: float | None = None

    @property
    def mb_per_cpu_s(self) -> float:
        """Payload per CPU time [MB/CPU-s]."""
        return self.payload_bytes / 1e6 / self.cpu_s

    @property
    def us_per_batch(self) -> float | None:
        """CPU time of a batch [CPU-us]; None where batches were not counted."""
        return self.cpu_s / self.batches * 1e6 if self.batches else None

    @property
    def kb_per_batch(self) -> float | None:
        """Payload of a batch [kB]; None where batches were not counted."""
        return self.payload_bytes / self.batches / 1e3 if self.batches else None


@contextlib.contextmanager
def started(
    command: Sequence[str], task: str, options: Mapping[str, Any] | None = None
) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """The process of a client with this task, and its error output; it is killed at the end."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            **(options or {}),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(task + "\n")
                process.stdin.flush()
            yield process, errors
        finally:
            process.kill()
            process.wait()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()


def by_offsets(
    process: subprocess.Popen[str],
    written_bytes: Callable[[], int],
    window: Window,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Repeat:
    """Measure a producer by the growth of its topic.

    Args:
        written_bytes: payload in the topic [B].
    """
    before = written_bytes()
    ends_s = clock() + START_DEADLINE_S
    while written_bytes() == before:
        if clock() > ends_s or process.poll() is not None:
            raise BenchError("it wrote nothing")
        sleep(_POLL_S)
    marks = []
    for wait_s in (window.warm_s, window.measure_s):
        sleep(wait_s)
        marks.append(Mark(clock(), written_bytes(), _cpu_of(process)))
    return between(*marks)


def by_lines(
    process: subprocess.Popen[str],
    parse: Callable[[str], tuple[int, float | None] | None],
    window: Window,
    clock: Callable[[], float] = time.monotonic,
) -> Repeat:
    """Measure a client by the progress lines that it prints.

    Args:
        parse: a line → payload until now [B] and the CPU time in the line [CPU-s], None without;
            None for a line without progress.
    """
    stdout = process.stdout
    assert stdout is not None
    timer = threading.Timer(START_DEADLINE_S + window.warm_s + window.measure_s, process.kill)
    timer.start()
    first: Mark | None = None
    last: Mark | None = None
    began_s: float | None = None
    try:
        for line in stdout:
            progress = parse(line)
            if progress is None:
                continue
            payload_bytes, used_s = progress
            now = clock()
            began_s = now if began_s is None else began_s
            if now - began_s < window.warm_s and payload_bytes < window.warm_bytes:
                continue
            mark = Mark(now, payload_bytes, _cpu_of(process) if used_s is None else used_s)
            first, last = first or mark, mark
            if now - first.at_s >= window.measure_s:
                break
    finally:
        timer.cancel()
    if first is None or last is None or last is first:
        raise BenchError("it printed fewer than two progress lines")
    return between(first, last)


def between(first: Mark, last: Mark) -> Repeat:
    """The repeat between two marks.

    Raises:
        BenchError: the client made no progress.
    """
    payload, cpu = last.payload_bytes - first.payload_bytes, last.cpu_s - first.cpu_s
    if payload <= 0 or cpu <= 0:
        raise BenchError(f"it moved {payload} bytes in {cpu:.3f} CPU-s")
    return Repeat(payload, cpu, last.at_s - first.at_s)


def last_words(process: subprocess.Popen[str]) -> dict[str, float]:
    """The figures of the last line of a client that ends by itself.

    Raises:
        BenchError: it did not end, or ended without a line.
    """
    try:
        printed, _ = process.communicate(timeout=START_DEADLINE_S)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"it did not end within {START_DEADLINE_S:.0f} s") from error
    lines = printed.strip().splitlines()
    if process.returncode or not lines:
        raise BenchError(f"it ended with exit code {process.returncode} and without its figures")
    figures: dict[str, float] = json.loads(lines[-1])
    return figures


def own_line(line: str) -> tuple[int, float | None] | None:
    """Parse a line of `tests.bench.task.say`."""
    progress = json.loads(line)
    return int(progress["bytes"]), float(progress["cpu_s"])


def _cpu_of(process: subprocess.Popen[str]) -> float:
    try:
        return cpu_s(process.pid)
    except psutil.NoSuchProcess as error:
        raise BenchError("its process has ended") from error
