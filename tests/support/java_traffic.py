"""Kafka's own Java producers of several kinds in one JVM, for tests of what learning sees."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from jobs.setup.jars import kafka_jars
from jobs.setup.preflight import java_command
from jobs.setup.releases import DEFAULT_RELEASE
from jobs.testbed.handle import Testbed

SOURCE = Path(__file__).with_name("Traffic.java")
START_S = 120.0


def kafka_tools_jars(version: str = DEFAULT_RELEASE) -> list[Path]:
    return kafka_jars(version, "kafka-tools")


@dataclass(frozen=True)
class JavaKind:
    """One kind of traffic.

    Attributes:
        rate_per_s: messages per second of each of them, evenly spaced.
        value_bytes: size of a value, half of it random.
        keys: number of different keys; 0 for none.
    """

    producers: int
    rate_per_s: float
    value_bytes: int
    keys: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def per_s(self) -> float:
        """Messages per second of all of them."""
        return self.producers * self.rate_per_s

    def scaled(self, scale: float) -> JavaKind:
        """The kind at a scale: whole producers, whose rate makes up for the rest."""
        wanted = self.producers * scale
        producers = max(1, round(wanted))
        return replace(self, producers=producers, rate_per_s=self.rate_per_s * wanted / producers)

    def words(self, topic: str) -> str:
        given = ",".join(f"{name}={value}" for name, value in self.properties.items())
        numbers = f"{self.producers} {self.rate_per_s} {self.value_bytes} {self.keys}"
        return f"{topic} {numbers} {given}"


@dataclass
class JavaTraffic:
    """The running program.

    Attributes:
        sent: topic → records that were sent so far.
        batch_bytes: topic → mean size of the batches of the last half minute, by the producers' own
            metrics, at each second [B].
    """

    sent: dict[str, int] = field(default_factory=dict)
    batch_bytes: dict[str, list[float]] = field(default_factory=dict)
    is_sending: threading.Event = field(default_factory=threading.Event)
    commands: IO[str] | None = None
    is_paused: bool = False

    def pause(self) -> None:
        """Stop all producers; what they gathered until then is still sent."""
        if not self.is_paused:
            self._command("pause")
            self.is_paused = True

    def resume(self) -> None:
        """Let all producers continue after a pause."""
        if self.is_paused:
            self._command("resume")
            self.is_paused = False

    def _command(self, word: str) -> None:
        assert self.commands is not None, "the program runs"
        self.commands.write(f"{word}\n")
        self.commands.flush()

    def read(self, lines: Iterator[str]) -> None:
        """Take the lines that the program prints."""
        for line in lines:
            words = line.split()
            if words == ["sending"]:
                self.is_sending.set()
            elif len(words) == 3:
                self.sent[words[0]] = int(words[1])
                self.batch_bytes.setdefault(words[0], []).append(float(words[2]))

    def batch_bytes_of_last_minute(self, topic: str) -> float:
        seen = self.batch_bytes[topic]
        return (seen[-1] + seen[-31]) / 2


@contextmanager
def java_traffic(
    testbed: Testbed, kinds: Mapping[str, JavaKind], word: str, log: Path
) -> Iterator[JavaTraffic]:
    """Producers of these kinds send within this context.

    Args:
        kinds: topic → the kind that is sent to it.
        log: file for what the program writes to its error stream.
    """
    jars = ":".join(map(str, kafka_jars(testbed.state.spec.kafka_version)))
    servers = ",".join(testbed.bootstrap_servers)
    arguments: Sequence[str] = [kind.words(topic) for topic, kind in kinds.items()]
    traffic = JavaTraffic()
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [java_command(), "-Xmx256M", "-cp", jars, str(SOURCE), servers, word, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None and process.stdout is not None
        traffic.commands = process.stdin
        reader = threading.Thread(target=traffic.read, args=(iter(process.stdout),))
        reader.start()
        try:
            assert traffic.is_sending.wait(START_S), log.read_text(errors="replace")[-2_000:]
            yield traffic
            assert process.poll() is None, log.read_text(errors="replace")[-2_000:]
        finally:
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
            reader.join()
