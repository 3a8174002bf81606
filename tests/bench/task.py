"""The task of a child process of the benchmark, and its reports of progress."""

from __future__ import annotations

import ctypes
import json
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Task:
    """One repeat of one client.

    Attributes:
        role: `producer` or `consumer`.
        seconds_max: time after which the client ends [s].
        warmup_s: time before it in which the engine's producers send, too [s].
        batch_bytes: `batch.size` [B].
        options: fields of the producers' pattern that differ from the benchmark's.
        connection: connection options with kafka-python's names.
        port: port of the other end of a plain socket.
        producers: number of producers in the process; Java's tool has one.
        records_per_s: rate of each producer, a whole number but for `wire`; -1 for no limit [1/s].
        batches: number of batches in the topic that consumers read; 0 if they were not counted.
        bytes_max: payload after which a consumer ends [B].
        jars: jars of Kafka's tools, for Java.
    """

    topic: str
    message_bytes: int
    role: str = ""
    client: str = ""
    bootstrap: tuple[str, ...] = ()
    seconds_max: float = 60.0
    warmup_s: float = 0.0
    batch_bytes: int = 262_144
    options: Mapping[str, Any] = field(default_factory=dict)
    connection: Mapping[str, Any] = field(default_factory=dict)
    port: int = 0
    producers: int = 1
    records_per_s: float = -1
    linger_ms: float = 10.0
    bytes_max: int = 0
    batches: int = 0
    jars: tuple[str, ...] = ()

    def to_text(self) -> str:
        """The task as text for the child's standard input."""
        return json.dumps({**asdict(self), "connection": dict(self.connection)})

    @classmethod
    def from_text(cls, text: str) -> Task:
        fields = json.loads(text)
        lists = {name: tuple(fields[name]) for name in ("bootstrap", "jars")}
        return cls(**{**fields, **lists})


def say(payload_bytes: int, **more: Any) -> None:
    """Report this process's payload [B] and CPU time [CPU-s] until now to the parent."""
    line = {"bytes": payload_bytes, "cpu_s": time.process_time(), **more}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def die_with_parent() -> None:
    """Have Linux kill this process when its parent ends, even after exec.

    On other systems, the Python children check for their parent.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
