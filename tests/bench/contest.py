"""The clients of the benchmark, and single repeats of them."""

from __future__ import annotations

import functools
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.bench.java import messages_of
from tests.bench.meter import BenchError, Repeat, Window, by_lines, by_offsets, own_line, started
from tests.bench.rows import JAVA, SOCKET, Key
from tests.bench.task import Task

CHILD = [sys.executable, "-m", "tests.bench.child"]
CLIENTS = ("wire", "librdkafka", "kafka-python", JAVA, SOCKET)

# Java's compiler needs time before a measurement.
WARM_S: Mapping[tuple[str, str], float] = {
    ("producer", JAVA): 2.0,
    ("consumer", JAVA): 1.0,
    ("consumer", "wire"): 0.0,
}
WARM_DEFAULT_S = 0.3

PACED_TIMES = 4
"""Length of the window of producers at a rate, which use little CPU time, over that of others."""


@dataclass(frozen=True)
class Entry:
    """One client in one role and variant.

    Attributes:
        variant: the difference from the plain case, in a word or two.
        options: fields of the engine's producer pattern that differ.
        is_tls: True to connect with TLS and a client certificate.
        pace: fields of the task for producers at a rate; empty for one that sends as fast as it
            can.
    """

    role: str
    client: str
    variant: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    is_tls: bool = False
    pace: Mapping[str, Any] = field(default_factory=dict)

    def key(self, message_bytes: int) -> Key:
        """The entry's row at a size of messages [B]."""
        return (self.role, self.client, self.variant, message_bytes)


@dataclass(frozen=True)
class Way:
    """Connection of clients to the brokers.

    Attributes:
        bootstrap: addresses of brokers, host:port.
        connection: connection options with kafka-python's names.
    """

    bootstrap: tuple[str, ...]
    connection: Mapping[str, Any] = field(default_factory=dict)


class Contest:
    """Runs single repeats against one topic.

    Args:
        written_bytes: (topic, message bytes) → payload in the topic [B].
        jars: the jars of Kafka's tools.
        plain, tls: the connections to the brokers.
        measure_s: longest duration of a repeat [s].
    """

    def __init__(
        self,
        written_bytes: Callable[[str, int], int],
        jars: Sequence[Path],
        plain: Way,
        tls: Way | None,
        measure_s: float,
    ) -> None:
        self._written_bytes = written_bytes
        self._jars = tuple(map(str, jars))
        self._ways = {False: plain, True: tls}
        self._measure_s = measure_s

    def run(self, entry: Entry, task: Task) -> Repeat:
        """Run one repeat in its own process.

        Args:
            entry: the client.
            task: the task that all clients get.

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
        with started(CHILD, task.to_text()) as (process, errors):
            try:
                if task.role == "producer":
                    written = functools.partial(self._written_bytes, task.topic, task.message_bytes)
                    return by_offsets(process, written, window)
                parse = own_line if entry.client != JAVA else _java_line(task.message_bytes)
                return by_lines(process, parse, window)
            except BenchError as error:
                process.kill()
                errors.seek(0)
                output = " ".join(errors.read().strip().splitlines()[-3:])
                raise BenchError(f"{entry.role} {entry.client}: {error}. {output}") from error

    def fill(self, task: Task, payload_bytes: int, deadline_s: float) -> None:
        """Fill the topic with this payload, by a producer [B].

        Raises:
            BenchError: the topic did not have the payload within `deadline_s` [s].
        """
        written = functools.partial(self._written_bytes, task.topic, task.message_bytes)
        plain = self._ways[False]
        assert plain is not None
        task = replace(task, role="producer", client="wire", bootstrap=plain.bootstrap)
        ends_s = time.monotonic() + deadline_s
        with started(CHILD, task.to_text()) as (process, errors):
            while written() < payload_bytes:
                if process.poll() is not None or time.monotonic() > ends_s:
                    errors.seek(0)
                    raise BenchError(f"{task.topic} could not be filled: {errors.read()[-300:]}")
                time.sleep(0.02)
        before = -1
        while (held := written()) != before:  # requests in flight still arrive
            before = held
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
