"""The task of a child process of the benchmark, and its reports of progress."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Task:
    """One repeat of one client.

    Attributes:
        topic: the topic to write or read.
        message_bytes: size of a message's value [B].
        role: `producer` or `consumer`.
        client: the client to run.
        bootstrap: addresses of brokers, host:port.
        seconds_max: time after which it ends on its own [s].
        batch_bytes: `batch.size` [B].
        options: fields of the producers' pattern that differ from the benchmark's.
        connection: connection options, as kafka-python calls them.
        port: of the other end of a plain socket.
        records_per_s: that Java's producer paces itself to; -1 is as fast as it can [1/s].
        bytes_max: a consumer ends after so much payload [B].
        jars: of Kafka's tools, for Java.
    """

    topic: str
    message_bytes: int
    role: str = ""
    client: str = ""
    bootstrap: tuple[str, ...] = ()
    seconds_max: float = 60.0
    batch_bytes: int = 262_144
    options: Mapping[str, Any] = field(default_factory=dict)
    connection: Mapping[str, Any] = field(default_factory=dict)
    port: int = 0
    records_per_s: int = -1
    bytes_max: int = 0
    jars: tuple[str, ...] = ()

    def to_text(self) -> str:
        """The task as text for the child's standard input."""
        return json.dumps({**asdict(self), "connection": dict(self.connection)})

    @classmethod
    def from_text(cls, text: str) -> Task:
        """Read what `to_text` wrote."""
        fields = json.loads(text)
        lists = {name: tuple(fields[name]) for name in ("bootstrap", "jars")}
        return cls(**{**fields, **lists})


def say(payload_bytes: int, **more: Any) -> None:
    """Report this process's payload [B] and CPU time [CPU-s] until now to the parent."""
    line = {"bytes": payload_bytes, "cpu_s": time.process_time(), **more}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
