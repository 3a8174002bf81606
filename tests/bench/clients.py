"""`make bench`: throughput per CPU-second of the engine's client and of other clients."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.connect import connect
from jobs.cluster.topic_plan import Assignment, assignment
from jobs.console.events import PhaseProgress, PhaseStarted, Reporter, note, warn
from jobs.console.printing import make_reporter
from jobs.entry import run
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from jobs.testbed.model import HOST
from jobs.testbed.places import NodeFiles
from tests.bench.commits import checkout
from tests.bench.contest import CLIENTS, Contest, Ends, Entry, Way
from tests.bench.log_batches import batches_between
from tests.bench.meter import BenchError, Repeat
from tests.bench.rows import (
    KERNEL,
    OURS,
    SOCKET,
    Key,
    changes_of,
    rows_of,
    sentences_of,
    table_of,
    unsure_of,
)
from tests.bench.task import Task
from tests.bench.variants import Variants, variants
from tests.support.fresh_topic import fresh_topic
from tests.support.java_traffic import kafka_tools_jars

PARTITIONS = 30
PREFILL_BYTES = 800_000_000
"""Payload of a topic that consumers read [B]."""

PREFILL_SMALL_BYTES = 200_000_000
"""The same for a topic of small batches [B]."""

PREFILL_DEADLINE_S = 60.0

BATCH_BYTES = Task.batch_bytes

SOCKET_BPM = 1_000
"""Message size of the plain socket's row [B]."""

TURNS_MAX = 20
"""Upper bound of the repeats for a ratio that is an aim, even with a wide interval."""

VARIANT_REPEATS = 3

# Large segments, which roll seldom, so that the broker limits the clients as little as possible.
BROKERS = {
    "log.segment.bytes": 67_108_864,
    "log.retention.bytes": 67_108_864,
    "group.initial.rebalance.delay.ms": 0,
}


class Bench:
    """One run of the benchmark on a running testbed."""

    def __init__(
        self, testbed: Testbed, admin: KafkaAdmin, reporter: Reporter, measure_s: float
    ) -> None:
        self._testbed, self._admin, self._reporter = testbed, admin, reporter
        self._assigned: Assignment = assignment(
            testbed.broker_ids, PARTITIONS // len(testbed.broker_ids), 1
        )
        self._contest = Contest(
            self._ends_of,
            self._batches_of,
            kafka_tools_jars(testbed.state.spec.kafka_version),
            *ways_to(testbed),
            measure_s,
        )
        self.found: dict[Key, dict[int, Repeat]] = {}
        self.failures: list[str] = []

    def measure(
        self,
        entries: Sequence[Entry],
        message_bytes: int,
        repeats: int,
        turns_max: int = 0,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        """Measure all entries at a size in turns, on one topic per role.

        Args:
            turns_max: upper bound of the turns of entries whose ratios are still uncertain.
            batch_bytes: `batch.size` of the topic that consumers read [B].
        """
        for role in dict.fromkeys(entry.role for entry in entries):
            self._reporter.report(PhaseStarted(f"{role}s at {message_bytes:,} B a message"))
            own = [entry for entry in entries if entry.role == role]
            with self._topic(role, message_bytes, batch_bytes) as task:
                for turn in range(max(repeats, turns_max)):
                    wanted = None if turn < repeats else unsure_of(self.found)
                    for entry in own:
                        if wanted is None or entry.key(message_bytes) in wanted:
                            self._repeat(entry, task, turn)

    def _repeat(self, entry: Entry, task: Task, turn: int) -> None:
        client = entry.key(task.message_bytes)[1]
        name = f"{client}, {entry.variant}" if entry.variant else client
        self._reporter.report(PhaseProgress(f"{name}, repeat {turn + 1}"))
        found = self.found.setdefault(entry.key(task.message_bytes), {})
        try:
            found[turn] = self._contest.run(entry, task)
        except BenchError as error:
            self.failures.append(str(error))
            warn(self._reporter, str(error))

    @contextmanager
    def _topic(self, role: str, message_bytes: int, batch_bytes: int) -> Iterator[Task]:
        """A topic for one measurement, filled for consumers."""
        name = f"bench-{role}-{message_bytes}-{int(time.time())}"
        is_read = role == "consumer"
        config = {"retention.bytes": "-1"} if is_read else {}
        with fresh_topic(self._admin, name, self._assigned, config):
            task = Task(name, message_bytes, batch_bytes=batch_bytes)
            if is_read:
                is_small = batch_bytes < BATCH_BYTES
                payload_bytes = PREFILL_SMALL_BYTES if is_small else PREFILL_BYTES
                self._contest.fill(task, payload_bytes, PREFILL_DEADLINE_S)
                ends = self._ends_of(name)
                count = self._batches_of(name, dict.fromkeys(ends, 0), ends) if is_small else 0
                held = sum(ends.values()) * message_bytes
                task = Task(name, message_bytes, bytes_max=held, batches=count)
            yield task

    def _ends_of(self, topic: str) -> Ends:
        ends = self._admin.end_offsets((topic, partition) for partition in self._assigned)
        return {partition: end for (_, partition), end in ends.items()}

    def _batches_of(self, topic: str, first: Ends, last: Ends) -> int:
        nodes = self._testbed.brokers.values()
        folders = [NodeFiles(node).data for node in nodes]  # they have one log dir each
        return batches_between(folders, topic, first, last)


def ways_to(testbed: Testbed) -> tuple[Way, Way | None]:
    """Connection options of the plain listener, and of the TLS listener where there is one."""
    plain = Way(tuple(f"{HOST}:{node.port}" for node in testbed.brokers.values()))
    if "SSL" not in testbed.state.spec.security:
        return plain, None
    security = testbed.client_security("SSL")
    return plain, Way(testbed.bootstrap_servers, dict(security.client_kwargs()))


def installed(clients: Sequence[str]) -> tuple[list[str], list[str]]:
    """The clients that are installed here, and a sentence about each missing one."""
    if "librdkafka" in clients and importlib.util.find_spec("confluent_kafka") is None:
        rest = [client for client in clients if client != "librdkafka"]
        return rest, ["no row for librdkafka: the package confluent-kafka is missing"]
    return list(clients), []


def entries_of(clients: Sequence[str], roles: Sequence[str], message_bytes: int) -> list[Entry]:
    """The plain entries: every client in every role; a plain socket has no messages."""
    return [
        Entry(role, client)
        for role in roles
        for client in clients
        if client != KERNEL and (client != SOCKET or message_bytes == SOCKET_BPM)
    ]


@dataclass(frozen=True)
class Choice:
    """The rows that are wanted.

    Attributes:
        sizes: bytes of a message.
        variants: parts of names of variants; without one, all of them and the plain rows.
        with_variants: False for the plain rows alone.
        commit: commit whose engine is measured beside that of today; empty for none.
    """

    sizes: Sequence[int]
    clients: Sequence[str]
    roles: Sequence[str]
    variants: Sequence[str]
    with_variants: bool
    commit: str

    def plain(self, message_bytes: int) -> list[Entry]:
        """The plain entries at a size of messages [B]."""
        if self.variants:
            return []
        return self._with_commit(entries_of(self.clients, self.roles, message_bytes))

    def of(self, entries: Sequence[Entry]) -> list[Entry]:
        """The wanted ones of these variants."""
        return self._with_commit(
            each
            for each in entries
            if each.role in self.roles
            and each.client in self.clients
            and (not self.variants or any(part in each.variant for part in self.variants))
        )

    def _with_commit(self, entries: Iterable[Entry]) -> list[Entry]:
        both = ((each, replace(each, commit=self.commit)) for each in entries)
        return [
            each
            for now, older in both
            for each in ((now, older) if self.commit and now.client == OURS else (now,))
        ]


@click.command()
@click.option("--repeats", default=5, show_default=True, help="Repeats of each client.")
@click.option("--seconds", default=1.2, show_default=True, help="Longest duration of a repeat [s].")
@click.option("--brokers", default=1, show_default=True, type=click.Choice([1, 3]))
@click.option(
    "--bpm", "sizes", default=(100, 1_000, 10_000), show_default=True, multiple=True,
    help="Bytes of a message; may be given several times.",
)  # fmt: skip
@click.option("--client", "clients", default=CLIENTS, multiple=True, type=click.Choice(CLIENTS))
@click.option(
    "--role", "roles", default=("producer", "consumer"), multiple=True,
    type=click.Choice(["producer", "consumer"]),
)  # fmt: skip
@click.option(
    "--variants/--no-variants", "with_variants", default=True, help="Also measure the variants."
)
@click.option(
    "--variant", "variants", multiple=True, help="Only variants whose name holds this, e.g. 1kB."
)
@click.option(
    "--against", "commit", default="", metavar="COMMIT",
    help="Also measure the engine of a commit, 2053f564 or later, in turns with that of today.",
)  # fmt: skip
@click.option("--out", default="out", show_default=True, type=click.Path(path_type=Path))
def bench(repeats: int, seconds: float, brokers: int, out: Path, **chosen: Any) -> None:
    """Measure payload per CPU-second of the engine's client and of others, on one testbed."""
    began_s = time.monotonic()
    clients, absent = installed(chosen.pop("clients"))
    choice = Choice(clients=clients, **chosen)
    if choice.commit:
        checkout(choice.commit)
    more = variants() if choice.with_variants else Variants((), ())
    names = sorted({each.variant for entries, *_ in more.groups for each in entries})
    if unknown := [part for part in choice.variants if not any(part in name for name in names)]:
        raise click.BadParameter(
            f"{', '.join(unknown)} is in no variant's name; expected a part of one of these: "
            f"{'; '.join(names)}"
        )
    with make_reporter() as reporter:
        reporter.report(PhaseStarted(f"starting {brokers} broker(s)"))
        overrides = {**BROKERS, "security": "SSL"} if choice.with_variants else BROKERS
        with (
            start("default", brokers=brokers, overrides=overrides, name="bench") as testbed,
            connect(ways_to(testbed)[0].bootstrap) as admin,
        ):
            run_of = Bench(testbed, admin, reporter, seconds)
            for size in choice.sizes:
                run_of.measure(choice.plain(size), size, repeats, TURNS_MAX)
            times = repeats if choice.variants else min(repeats, VARIANT_REPEATS)
            for entries, size, batch_bytes in more.groups:
                if size in choice.sizes:
                    run_of.measure(choice.of(entries), size, times, batch_bytes=batch_bytes)
        rows = rows_of(run_of.found)
        reporter.report(table_of(rows))
        skipped = [*absent, *more.skipped]
        aims = sentences_of(run_of.found)
        changes = changes_of(run_of.found, choice.commit) if choice.commit else []
        for sentence in (*aims, *changes, *skipped):
            note(reporter, sentence)
        answer = {
            "kafka_version": testbed.state.spec.kafka_version,
            "brokers": brokers,
            "repeats": repeats,
            "seconds": seconds,
            "duration_s": round(time.monotonic() - began_s, 1),
            "rows": [row.to_dict() for row in rows],
            "aims": aims,
            "against": choice.commit,
            "changes": changes,
            "skipped": skipped,
            "failures": run_of.failures,
        }
        out.mkdir(parents=True, exist_ok=True)
        (out / "bench.json").write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
        note(reporter, f"{out / 'bench.json'}, after {answer['duration_s']} s")


if __name__ == "__main__":
    run(bench)
