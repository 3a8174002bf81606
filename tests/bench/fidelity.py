"""Comparison of two clients with the same pattern on real brokers, by the brokers' metrics."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.connect import connect
from jobs.cluster.topic_plan import assignment
from jobs.engine.stage import run_task
from jobs.testbed.handle import Testbed
from metrics.common.errors import RedlineError
from metrics.sources.jmx import open_jmx
from metrics.sources.sample import BrokerSample
from metrics.sources.sampler import Sampler
from metrics.sources.source import MetricsSource
from metrics.traffic.clients import ProducerPattern
from metrics.trial.client import Counts, TaskReport
from metrics.windows.broker import broker_window
from tests.bench.engine import Alone
from tests.bench.likeness import BrokerLoad, differences, load_of, median_of
from tests.support.fresh_topic import fresh_topic
from tests.support.patterns import pattern, plan, producer_pattern

RATES_BYTES_PER_S = (50_000, 400_000, 2_000_000)
SIZES = (100, 1_000, 10_000)
ACKS = ("1", "all")
CLIENTS = ("wire", "librdkafka")

REPLICAS = 2
PARTITIONS_PER_BROKER = 10
START_LEAD_S = 0.5
WARM_UP_S = 10.0
"""Duration of each of two loads per client on brokers with cold JVMs [s]."""

BATCH_BYTES = 8_192
SAMPLE_INTERVAL_S = 0.5
ACHIEVED_MIN = 0.98
ROUNDS = 5
TRIES = 3
"""Largest number of windows of a client, as a broker can stall for a second in one of them."""


class FidelityError(RedlineError):
    """A client did not offer the pattern, so it cannot be compared."""


@dataclass(frozen=True)
class Case:
    """One pattern of identical producers.

    Attributes:
        rate_bytes_per_s: payload that a producer offers [B/s].
        acks: "1" or "all".
        is_overload: whether brokers may take less than is offered.
    """

    rate_bytes_per_s: int
    message_bytes: int
    acks: str
    producers: int = 1
    linger_ms: float = 5.0
    is_overload: bool = False

    def producer(self, client: str) -> ProducerPattern:
        return producer_pattern(
            self.message_bytes,
            self.rate_bytes_per_s / self.message_bytes,
            client=client,
            acks=self.acks,
            linger_ms=self.linger_ms,
            batch_size=BATCH_BYTES,
        )

    def __str__(self) -> str:
        return f"{self.rate_bytes_per_s:,} B/s of {self.message_bytes:,} B, acks={self.acks}"


CASES = tuple(Case(*each) for each in itertools.product(RATES_BYTES_PER_S, SIZES, ACKS))


@dataclass(frozen=True)
class Compared:
    """The brokers' metrics for both clients in one case, in pairs of adjacent windows."""

    case: Case
    pairs: tuple[tuple[BrokerLoad, BrokerLoad], ...]

    @property
    def wire(self) -> BrokerLoad:
        return median_of([wire for wire, _ in self.pairs])

    @property
    def librdkafka(self) -> BrokerLoad:
        return median_of([librdkafka for _, librdkafka in self.pairs])

    def __str__(self) -> str:
        """A row of docs/evidence/fidelity.md; a star marks a difference above its tolerance."""
        shown = {
            "requests_per_s": "{:.1f}", "request_bytes": "{:.0f}", "bytes_in_per_s": "{:,.0f}",
            "handler_idle": "{:.3f}", "local_ms": "{:.2f}",
        }  # fmt: skip
        cells = [
            " / ".join(form.format(getattr(each, name)) for each in (self.wire, self.librdkafka))
            + " *" * (name in self.differences)
            for name, form in shown.items()
        ]
        return f"| {self.case} | {' | '.join(cells)} |"

    @property
    def differences(self) -> dict[str, tuple[float, float]]:
        """The fields in which the clients differ by more than allowed."""
        return differences(self.pairs)


class Comparison:
    """Runs cases on a testbed.

    Args:
        testbed: the testbed, whose brokers should be warm.
        warm_s, measure_s: duration of the load before and in the window [s].

    Attributes:
        delayed: number of windows that did not count, as the sender was delayed.
    """

    def __init__(
        self,
        testbed: Testbed,
        admin: KafkaAdmin,
        source: MetricsSource,
        warm_s: float = 1.0,
        measure_s: float = 5.0,
    ) -> None:
        self._brokers, self._admin, self._source = testbed.broker_ids, admin, source
        replicas = min(REPLICAS, len(self._brokers))
        self._assigned = assignment(self._brokers, PARTITIONS_PER_BROKER, replicas)
        self._addresses = admin.describe_cluster().addresses
        self._warm_s, self._measure_s = warm_s, measure_s
        self.delayed = 0

    def compare(self, case: Case, rounds: int = ROUNDS) -> Compared:
        """Measure both clients in turns; each is first as often as it is last.

        A short stall of the disk distorts the mean of one window, but not the median of all.
        """
        seen: dict[str, list[BrokerLoad]] = {client: [] for client in CLIENTS}
        with self._topic() as topic:
            for number in range(rounds):
                for client in CLIENTS if number % 2 == 0 else reversed(CLIENTS):
                    seen[client].append(self.load(client, case, topic))
        return Compared(case, tuple(zip(*(seen[client] for client in CLIENTS), strict=True)))

    def load(self, client: str, case: Case, topic: str) -> BrokerLoad:
        """The brokers' metrics for one client in a window without delays of the sender.

        Raises:
            FidelityError: the client failed, or did not offer the pattern in `TRIES` windows.
        """
        for turn in range(TRIES):
            row, samples = self._run(client, case, topic)
            if _is_offered(client, case, row, is_last=turn == TRIES - 1):
                break
            self.delayed += 1
        windows = (
            broker_window(samples, broker, row.start_s, row.end_s, SAMPLE_INTERVAL_S)
            for broker in self._brokers
        )
        return load_of(list(windows))

    def warm_up(self) -> None:
        """Load brokers with cold JVMs, with both clients in turns."""
        with self._topic() as topic:
            for client in (*CLIENTS, *CLIENTS):
                self._run(client, CASES[-1], topic, WARM_UP_S)

    def _topic(self) -> AbstractContextManager[str]:
        return fresh_topic(self._admin, f"fidelity-{uuid.uuid4().hex[:8]}", self._assigned, {})

    def _run(
        self, client: str, case: Case, topic: str, measure_s: float | None = None
    ) -> tuple[TaskReport, list[BrokerSample]]:
        phases = pattern(
            case.producers, warmup_s=self._warm_s, measure_s=measure_s or self._measure_s
        )
        made = plan(
            trial_id=topic,
            topics=(topic,),
            pattern=replace(phases, producer=case.producer(client)),
            leaders=tuple(self._assigned[number][0] for number in sorted(self._assigned)),
            brokers=self._addresses,
            start_lead_s=START_LEAD_S,
        )
        with Sampler(self._source, SAMPLE_INTERVAL_S) as sampler:
            row = run_task(made, Alone())
            return row, sampler.stop()


@contextmanager
def comparison_on(testbed: Testbed, jvm: Any, **seconds: float) -> Iterator[Comparison]:
    """Comparisons on this testbed, with metrics read by a JVM.

    Args:
        seconds: `warm_s` and `measure_s` of `Comparison`.
    """
    with (
        connect(testbed.bootstrap_servers) as admin,
        closing(open_jmx(testbed.jmx_endpoints, jvm)) as source,
    ):
        yield Comparison(testbed, admin, source, **seconds)


def _is_offered(client: str, case: Case, row: TaskReport, is_last: bool) -> bool:
    """True if the window has the pattern; the last try must have it."""
    counts = row.produced.counts if row.produced else Counts()
    if row.error is not None or counts.failed_total:
        raise FidelityError(f"{client}, {case}: {row.error or counts.errors}")
    is_whole = case.is_overload or counts.sent_records >= ACHIEVED_MIN * counts.offered_records
    if is_last and not is_whole:
        raise FidelityError(
            f"{client}, {case}: sent {counts.sent_records} of {counts.offered_records} records in "
            f"the last of {TRIES} windows; expected {ACHIEVED_MIN:.0%} at least; use a quieter "
            "machine"
        )
    return is_whole
