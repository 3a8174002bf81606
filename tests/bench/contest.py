"""The clients of the benchmark, and single repeats of them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.bench.commits import checkout, with_code_of
from tests.bench.java import messages_of
from tests.bench.meter import (
    BenchError,
    Repeat,
    Window,
    by_lines,
    by_offsets,
    last_words,
    own_line,
    started,
)
from tests.bench.requests import records_per_request
from tests.bench.rows import JAVA, KERNEL, OURS, SOCKET, Key, of_commit
from tests.bench.task import Task

CHILD = [sys.executable, "-m", "tests.bench.child"]
ENGINE = [sys.executable, "-m", "tests.bench.engine"]
CLIENTS = (OURS, "librdkafka", "kafka-python", JAVA, SOCKET, KERNEL)

# Java's compiler needs time before a measurement.
WARM_S: Mapping[tuple[str, str], float] = {
    ("producer", JAVA): 2.0,
    ("consumer", JAVA): 1.0,
    ("consumer", OURS): 0.0,
}
WARM_DEFAULT_S = 0.3

PACED_TIMES = 4
"""Length of the window of producers at a rate, which use little CPU time, over that of others."""

TAIL_S = 0.5
"""Time for which the engine sends at a rate after the window, until it states its lateness [s]."""


Ends = Mapping[int, int]
"""Partition → its end offset."""


@dataclass(frozen=True)
class Entry:
    """One client in one role and variant.

    Attributes:
        variant: the difference from the plain case, in a word or two.
        options: fields of the engine's producer pattern that differ.
        is_tls: True to connect with TLS and a client certificate.
        pace: fields of the task for producers at a rate; empty for one that sends as fast as it
            can.
        commit: commit of the engine; empty for the code of today.
    """

    role: str
    client: str
    variant: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    is_tls: bool = False
    pace: Mapping[str, Any] = field(default_factory=dict)
    commit: str = ""

    def key(self, message_bytes: int) -> Key:
        name = of_commit(self.commit) if self.commit else self.client
        return (self.role, name, self.variant, message_bytes)


@dataclass(frozen=True)
class Way:
    """Connection of clients to the brokers.

    Attributes:
        connection: connection options with kafka-python's names.
    """

    bootstrap: tuple[str, ...]
    connection: Mapping[str, Any] = field(default_factory=dict)


class Contest:
    """Runs single repeats against one topic.

    Args:
        ends_of: topic → its partitions with their end offsets.
        batches_of: (topic, end offsets before, end offsets after) → number of batches between.
        measure_s: longest duration of a repeat [s].
    """

    def __init__(
        self,
        ends_of: Callable[[str], Ends],
        batches_of: Callable[[str, Ends, Ends], int],
        jars: Sequence[Path],
        plain: Way,
        tls: Way | None,
        measure_s: float,
    ) -> None:
        self._ends_of = ends_of
        self._batches_of = batches_of
        self._jars = tuple(map(str, jars))
        self._ways = {False: plain, True: tls}
        self._measure_s = measure_s

    def run(self, entry: Entry, task: Task) -> Repeat:
        """Run one repeat in its own process.

        Raises:
            BenchError: the client failed; the message ends with its last output.
        """
        warm_s = WARM_S.get((entry.role, entry.client), WARM_DEFAULT_S)
        measure_s = self._measure_s * (PACED_TIMES if entry.pace else 1)
        # A fast consumer would reach the end of the topic before `warm_s` has passed.
        window = Window(warm_s, measure_s, task.bytes_max / 2 or math.inf)
        way = self._ways[entry.is_tls]
        if way is None:
            raise BenchError(f"{entry.role} {entry.client}: the brokers have no TLS listener")
        task = replace(
            task,
            role=entry.role,
            client=entry.client,
            bootstrap=way.bootstrap,
            options=entry.options,
            connection=way.connection,
            jars=self._jars if entry.client == JAVA else (),
            **entry.pace,
        )
        if entry.client == SOCKET:
            return self._over_a_socket(task, window)
        if entry.client == KERNEL:
            return self._in_the_kernel(task, window)
        self._await_rest(task.topic)
        command, options = CHILD, None
        if entry.client == OURS:
            command = ENGINE
            options = with_code_of(checkout(entry.commit)) if entry.commit else None
            if entry.pace:
                task = replace(task, warmup_s=warm_s, seconds_max=measure_s + TAIL_S)
        with started(command, task.to_text(), options) as (process, errors):
            try:
                if task.role == "producer":
                    return self._producing(process, task, window)
                parse = own_line if entry.client != JAVA else _java_line(task.message_bytes)
                repeat = by_lines(process, parse, window)
                read = repeat.payload_bytes / task.bytes_max
                return replace(repeat, batches=round(read * task.batches))
            except BenchError as error:
                process.kill()
                errors.seek(0)
                output = " ".join(errors.read().strip().splitlines()[-3:])
                name = " ".join(entry.key(task.message_bytes)[:2])
                raise BenchError(f"{name}: {error}. {output}") from error

    def _producing(self, process: subprocess.Popen[str], task: Task, window: Window) -> Repeat:
        looks: list[Ends] = []

        def written() -> int:
            looks.append(self._ends_of(task.topic))
            return sum(looks[-1].values()) * task.message_bytes

        repeat = by_offsets(process, written, window)
        if task.records_per_s < 0:
            return repeat
        repeat = replace(repeat, batches=self._batches_of(task.topic, *looks[-2:]))
        if task.client != OURS:
            return repeat
        return replace(repeat, late_ms=last_words(process)["late_p99_ms"])

    def _in_the_kernel(self, task: Task, window: Window) -> Repeat:
        with started(CHILD, task.to_text()) as (process, _):
            repeat = by_lines(process, own_line, window)
        request_bytes = records_per_request(task) * task.message_bytes
        return replace(repeat, batches=repeat.payload_bytes // request_bytes)

    def fill(self, task: Task, payload_bytes: int, deadline_s: float) -> None:
        """Fill the topic with this payload, by a producer [B].

        Raises:
            BenchError: the topic did not have the payload within `deadline_s` [s].
        """

        def written() -> int:
            return sum(self._ends_of(task.topic).values()) * task.message_bytes

        plain = self._ways[False]
        assert plain is not None
        task = replace(task, role="producer", client=OURS, bootstrap=plain.bootstrap)
        ends_s = time.monotonic() + deadline_s
        with started(ENGINE, task.to_text()) as (process, errors):
            while written() < payload_bytes:
                if process.poll() is not None or time.monotonic() > ends_s:
                    errors.seek(0)
                    raise BenchError(f"{task.topic} could not be filled: {errors.read()[-300:]}")
                time.sleep(0.02)
        self._await_rest(task.topic)

    def _await_rest(self, topic: str) -> None:
        """Wait until requests that were in flight at the end of a client have arrived."""
        before: Ends = {}
        while (ends := self._ends_of(topic)) != before:
            before = ends
            time.sleep(0.1)

    def _over_a_socket(self, task: Task, window: Window) -> Repeat:
        reader, writer = replace(task, role="consumer"), replace(task, role="producer")
        with started(CHILD, reader.to_text()) as (receiving, _):
            assert receiving.stdout is not None
            port = port_of(receiving.stdout.readline())
            with started(CHILD, replace(writer, port=port).to_text()) as (sending, _):
                return by_lines(sending if task.role == "producer" else receiving, own_line, window)


def port_of(line: str) -> int:
    """Port of a plain socket, from its first line of output."""
    try:
        return int(json.loads(line)["port"])
    except (ValueError, KeyError) as error:
        raise BenchError(f"a plain socket printed {line!r}; expected its port") from error


def _java_line(message_bytes: int) -> Callable[[str], tuple[int, float | None] | None]:
    def parse(line: str) -> tuple[int, float | None] | None:
        messages = messages_of(line)
        return None if messages is None else (messages * message_bytes, None)

    return parse
