"""Deliveries to brokers that fail in any way: rules that hold at each moment, and at the end."""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.engine.producing.delivery import Action, Produce, Reopen, SendControlRequest
from jobs.engine.producing.producer import Connection, Producer
from jobs.engine.producing.protocol import Batch
from jobs.engine.producing.transactions import (
    AddPartitions,
    CoordinatorRequest,
    EndTransaction,
    FindCoordinator,
    RenewEpoch,
)
from tests.support.driven_delivery import BROKERS, RECORD_BYTES, DrivenDelivery
from tests.support.scripted_log import Log

NOT_LEADER, TIMED_OUT, TOO_LARGE, TOO_FEW_REPLICAS, UNKNOWN_PRODUCER = 6, 7, 10, 19, 59
OF_A_COORDINATOR = (14, 16, 51)  # loading, not here, and completing the transaction before
TRANSIENT = (TIMED_OUT, TOO_FEW_REPLICAS)
IDEMPOTENT: dict[str, Any] = {"enable_idempotence": True, "acks": "all"}
END_S = 30.0


def waiting_in(producer: Producer) -> Iterator[Batch]:
    """The batches that wait to be sent, for the first time or again."""
    for connection in producer.connections.values():
        for queue in connection.pending.queues.values():
            yield from queue
    for muted in producer.muted.values():
        yield from muted.pending
    if producer.transactions is not None:
        yield from producer.transactions.pending


class WatchedDelivery(DrivenDelivery):
    """A delivery that is checked against its rules with each action and after each event.

    Attributes:
        questions: connection → its unanswered requests that have no batches; None for metadata.
        added: producer → partitions that the coordinator has added to its transaction.
        reopening: connections that are being opened again.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(rate=3.0, end_s=END_S, **options)
        self.questions: dict[Connection, deque[CoordinatorRequest | None]] = defaultdict(deque)
        self.added: dict[Producer, set[int]] = defaultdict(set)
        self._dropped = 0
        self.reopening: set[Connection] = set()
        self._sent: Counter[int] = Counter()
        self._retried: Counter[int] = Counter()
        self._requests: Counter[int] = Counter()
        self._last: dict[tuple[int, int], int] = {}
        self._epochs: dict[tuple[int, int], int] = {}
        self._not_before_s: dict[tuple[int, int], float] = {}
        self._failed_before: Counter[Producer] = Counter()

    # --- what it does -------------------------------------------------------

    def carry_out(self, action: Action, now: float) -> None:
        """Check an action, and carry it out."""
        connection = action.connection
        if isinstance(action, Produce):
            self._check_request(connection, action.batches, now)
        elif isinstance(action, Reopen):
            assert not connection.is_open and connection not in self.reopening, "once"
            self.reopening.add(connection)
        elif isinstance(action, SendControlRequest):
            self._check_question(connection, action.request)
            self.questions[connection].append(action.request)
        super().carry_out(action, now)

    def _check_request(self, connection: Connection, batches: Sequence[Batch], now: float) -> None:
        producer = connection.producer
        assert connection.is_open and not connection.is_congested
        assert len(connection.in_flight) <= connection.max_in_flight
        assert len({batch.partition for batch in batches}) == len(batches)
        self._requests[connection.broker] += self.account.window.holds(now)
        for batch in batches:
            of = producer.index, batch.partition
            assert self.metadata.leaders[batch.partition] == connection.broker
            if producer.transactions is not None:
                assert batch.partition in self.added[producer], "before its first batch"
            if batch.stamp is not None:
                assert batch.stamp[0] >= self._epochs.get(of, 0), "epochs never go back"
                self._epochs[of] = batch.stamp[0]
            if batch.trouble is not None:
                assert len(batches) == 1
                self._check_retry(producer, batch, now)
                continue
            assert self.delivery.is_open and now < END_S
            assert producer.due_s(batch.first + batch.records - 1) <= now + 1e-9
            assert batch.partition not in producer.muted, "no batch overtakes one that failed"
            assert batch.first > self._last.get(of, -1), "in order"
            self._last[of] = batch.first
            self._sent[batch.partition] += batch.records

    def _check_retry(self, producer: Producer, batch: Batch, now: float) -> None:
        assert batch.trouble is not None and batch.trouble.failures <= self.options.retries
        assert now - batch.due_s <= self.options.delivery_timeout_ms / 1000.0
        muted = producer.muted[batch.partition]
        assert muted.under_way is batch, "one by one"
        assert all(batch.first < later.first for later in muted.again), "in order"
        assert now >= self._not_before_s.get((producer.index, batch.partition), 0.0), "back-off"
        self._retried[batch.partition] += batch.records

    def _check_question(self, connection: Connection, request: CoordinatorRequest | None) -> None:
        producer = connection.producer
        assert connection.is_open
        if request is None and self.options.acks != "0":
            assert not any(None in each for each in self.questions.values()), "one for all"
        if isinstance(request, EndTransaction):
            own = producer.connections.values()
            assert not any(batches for each in own for _, batches in each.in_flight)
            assert not any(muted.again for muted in producer.muted.values())
            has_failed = self._failed(producer) > self._failed_before[producer]
            assert request.is_commit is not has_failed, "all or nothing"

    def _failed(self, producer: Producer) -> int:
        return sum(self.counts.by_producer.failed.get(producer.index, {}).values())

    # --- what happens to it -------------------------------------------------

    def respond(self, connection: Connection, errors: Mapping[int, int], now: float) -> None:
        """Answer the oldest request with an error code for each partition."""
        self.now = now
        _sent_s, batches = connection.in_flight[0]
        self.delivery.handle_produce_response(connection, errors, 0, now)
        self._note_failures(connection.producer, batches, now)

    def lose(self, connection: Connection, now: float, error: str = "ConnectionClosed") -> None:
        """Lose the connection."""
        requests = list(connection.in_flight)
        super().lose(connection, now, error)
        self.questions.pop(connection, None)
        for _, batches in requests:
            self._note_failures(connection.producer, batches, now)

    def reopen(self, connection: Connection, now: float) -> None:
        """Reopen the connection."""
        self.reopening.discard(connection)
        super().reopen(connection, now)

    def end_transaction(self, producer: Producer) -> None:
        """Forget a transaction that the coordinator has ended."""
        self.added[producer].clear()
        self._failed_before[producer] = self._failed(producer)

    def _note_failures(self, producer: Producer, batches: Sequence[Batch], now: float) -> None:
        options = self.options
        for batch in batches:
            muted, of = producer.muted.get(batch.partition), (producer.index, batch.partition)
            if muted is None or batch not in muted.again:
                self._not_before_s.pop(of, None)
                continue
            assert batch.trouble is not None
            backoff_ms = options.retry_backoff_ms * 2 ** min(batch.trouble.failures - 1, 30)
            backoff_ms = min(backoff_ms, options.retry_backoff_max_ms)
            self._not_before_s[of] = now + 0.8 * backoff_ms / 1000.0

    def close(self) -> None:
        """End the window."""
        self._dropped = sum(
            batch.records
            for producer in self.delivery.producers
            for batch in waiting_in(producer)
            if batch.trouble is None
        )
        self.delivery.close(END_S)

    # --- what holds at each moment ------------------------------------------

    def check(self, now: float) -> None:
        """Each record is in one place, memory is bounded, and nothing waits without a cause."""
        counts, is_open = self.counts, self.delivery.is_open
        opened = unsettled = 0
        for producer in self.delivery.producers:
            waiting = list(waiting_in(producer))
            new = [batch for batch in waiting if batch.trouble is None]
            opened += producer.opened
            unsettled += sum(b.records for b in waiting if is_open or b.trouble is not None)
            for connection in producer.connections.values():
                unsettled += sum(b.records for _, sent in connection.in_flight for b in sent)
            if not is_open:
                continue
            assert producer.buffered_bytes == sum(batch.size for batch in waiting)
            memory = self.options.buffer_memory
            assert producer.buffered_bytes >= memory or not producer.blocked
            more = 1 if producer.transactions is None else 2  # the last one of a transaction, too
            assert sum(batch.size for batch in new[more:]) <= memory, "bounded"
        settled = counts.acked_total + counts.failed_total
        assert opened == settled + unsettled + self._dropped
        assert dict(+Counter(counts.sent_by_partition)) == self._sent, "each counts once"
        assert dict(+Counter(counts.retried_by_partition)) == self._retried
        assert sum(counts.retry_errors.values()) == sum(self._retried.values())
        for broker in BROKERS:
            assert counts.by_broker[broker].requests == self._requests[broker]
        if unsettled:
            assert self.delivery.has_work
        elif not is_open and self.options.acks != "0" and not self.options.transaction_duration_ms:
            is_congested = any(each.is_congested for each in self.delivery.connections)
            assert self.delivery.has_work is is_congested

    def check_progress(self, now: float) -> None:
        """What could be sent has been sent, after all actions until now."""
        for connection in self.delivery.connections:
            assert not (connection.has_room and connection.has_waiting)
        longest_s = 1.2 * self.options.retry_backoff_max_ms / 1000.0
        for producer in self.delivery.producers:
            waits = producer.transactions is not None
            for muted in producer.muted.values():
                for_room = any(muted in each.waiting for each in producer.connections.values())
                is_queued = muted.under_way is not None or for_room
                assert waits or is_queued or now < muted.scheduled_s <= now + longest_s


class Mishaps:
    """Two brokers with one log that fail in any way, and then recover.

    Args:
        codes: errors that they answer at times, instead of taking a batch.
    """

    def __init__(self, driven: WatchedDelivery, seed: int, codes: Sequence[int]) -> None:
        self.log = Log()
        self.is_well = False
        self._driven = driven
        self._rng = random.Random(seed)
        self._codes = codes
        self._leaders = list(driven.metadata.leaders)

    def wait_s(self) -> float:
        """Time until the next event [s]."""
        return self._rng.expovariate(10.0)

    def happen(self, now: float) -> None:  # noqa: C901 - a table of chances
        """One random event."""
        driven, rng = self._driven, self._rng
        connection = rng.choice(driven.delivery.connections)
        chance = 0.0 if self.is_well else rng.random()
        if not connection.is_open:
            if connection in driven.reopening and chance < 0.5:
                driven.reopen(connection, now)
        elif connection.is_congested:
            driven.delivery.mark_flushed(connection)
        elif chance < 0.7:
            if connection.in_flight:
                self._answer(connection, now)
        elif chance < 0.8:
            for _, batches in list(connection.in_flight)[: rng.randrange(4)]:
                self._take(connection, batches)  # and the answer is lost on its way
            driven.lose(connection, now)
        elif chance < 0.85 and connection.in_flight:
            driven.delivery.mark_congested(connection)
        elif chance < 0.9:
            self._leaders[rng.randrange(len(self._leaders))] = rng.choice(BROKERS)
        elif chance < 0.95 and not connection.has_successor:
            driven.reopen(connection, now)  # as its session ends soon

    def _answer(self, connection: Connection, now: float) -> None:
        batches = connection.in_flight[0][1]
        if batches:
            self._driven.respond(connection, self._take(connection, batches), now)
            return
        request = self._driven.questions[connection].popleft()
        if request is None:
            self._driven.answer_metadata(connection, now, dict(enumerate(self._leaders)))
        else:
            self._coordinate(connection, request, now)

    def _coordinate(self, connection: Connection, request: CoordinatorRequest, now: float) -> None:
        driven, producer = self._driven, connection.producer
        code, answer = 0, (-1, -1)
        if not self.is_well and self._rng.random() < 0.2:
            code = self._rng.choice(OF_A_COORDINATOR)
        elif isinstance(request, FindCoordinator):
            answer = self._rng.choice((*BROKERS, 9)), -1
        elif isinstance(request, AddPartitions):
            driven.added[producer].update(request.partitions)
        elif isinstance(request, RenewEpoch):
            assert producer.id_state is not None
            answer = producer.id_state.producer_id, producer.id_state.epoch + 1
        if code == 0 and isinstance(request, EndTransaction | RenewEpoch):
            driven.end_transaction(producer)
        driven.now = now
        driven.delivery.handle_coordinator_response(connection, code, answer, now)

    def _take(self, connection: Connection, batches: Sequence[Batch]) -> dict[int, int]:
        return {batch.partition: self._append(connection, batch) for batch in batches}

    def _append(self, connection: Connection, batch: Batch) -> int:
        if self._leaders[batch.partition] != connection.broker:
            return NOT_LEADER
        if not self.is_well and self._rng.random() < 0.2:
            code = self._rng.choice(self._codes)
            if code != TIMED_OUT or self._rng.random() < 0.5:
                return code
            return self._keep(connection, batch) or TIMED_OUT
        return self._keep(connection, batch)

    def _keep(self, connection: Connection, batch: Batch) -> int:
        epoch, sequence = batch.stamp or (-1, -1)
        state = connection.producer.id_state
        kept = SimpleNamespace(
            producer_id=-1 if state is None else state.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            records_count=batch.records,
            first_timestamp=batch.first,
        )
        return self.log.append(batch.partition, kept)


def befall(seed: int, codes: Sequence[int], **options: Any) -> tuple[WatchedDelivery, Log]:
    """A load of 30 s on brokers that fail all the time, and recover in the drain."""
    usual: dict[str, Any] = {
        "leaders": (1, 2, 1), "full": 3, "batch_size": 500, "max_in_flight": 3
    }  # fmt: skip
    driven = WatchedDelivery(**(usual | options))
    mishaps = Mishaps(driven, seed, codes)
    now = 0.0
    while driven.delivery.is_open:
        now += mishaps.wait_s()
        driven.until(min(now, END_S))
        driven.check_progress(min(now, END_S))
        driven.delivery.expire(now)
        if now >= END_S:
            driven.close()
        mishaps.happen(max(now, driven.now))
        driven.check(now)
    mishaps.is_well = True
    while driven.delivery.has_work:
        now += 0.05
        assert now < 200.0, "the delivery ends"
        driven.until(now)
        mishaps.happen(now)
        driven.check(now)
    counts = driven.counts
    acked, by_producer = counts.acked_by_partition, counts.by_producer
    for partition in range(len(driven.metadata.leaders) if driven.options.acks != "0" else 0):
        least = acked.get(partition, 0)
        most = least + counts.failed_by_partition.get(partition, 0)
        most += counts.duplicates_by_partition.get(partition, 0)
        assert least <= mishaps.log.records_of(partition) <= most
    assert sum(by_producer.acked.values()) == counts.acked_total
    assert counts.acked_bytes == RECORD_BYTES * counts.acked_records
    driven.account.latency.fold()
    assert driven.account.latency.histogram.count == counts.acked_records
    return driven, mishaps.log


def test_an_idempotent_producer_loses_and_repeats_no_record_and_keeps_the_order() -> None:
    repeats = retried = replaced = 0
    for seed in (*range(40), 909, 3037):
        driven, log = befall(seed, TRANSIENT, **IDEMPOTENT)
        counts = driven.counts
        assert counts.failed_total == counts.duplicates_at_most == 0, seed
        assert counts.acked_total == log.records, seed
        for partition in range(3):
            firsts = log.times_of(partition)
            assert firsts == sorted(set(firsts)), seed
        repeats += log.repeats
        retried += counts.retried_records
        replaced += driven.replaced
    assert repeats > 40 < retried, "brokers got batches that they had, and other failures occurred"
    assert replaced > 40


KINDS: tuple[dict[str, Any], ...] = (
    {}, {"acks": "0"}, IDEMPOTENT, IDEMPOTENT | {"transaction_duration_ms": 2_500.0}
)  # fmt: skip
CHOICES: dict[str, tuple[Any, ...]] = {
    "leaders": ((1,), (1, 2), (1, 2, 1)),
    "full": (1, 3),
    "producers": (1, 1, 2),
    "batch_size": (1, 500),
    "max_in_flight": (1, 3),
    "linger_ms": (0.0, 400.0),
    "retries": (1, 3, 1_000),
    "buffer_memory": (600, 1 << 25),
    "delivery_timeout_ms": (3_000, 120_000),
}


@pytest.mark.computes
def test_every_record_is_accounted_for_under_any_failures() -> None:
    sums: Counter[str] = Counter()
    for seed in (*range(200), 1276):
        rng = random.Random(f"options/{seed}")
        options = {name: rng.choice(values) for name, values in CHOICES.items()}
        options |= rng.choice(KINDS)
        codes = [*TRANSIENT, TOO_LARGE]
        codes += [UNKNOWN_PRODUCER] if "enable_idempotence" in options else []
        try:
            driven, _ = befall(seed, codes, **options)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {options}") from error
        counts = driven.counts
        sums["failed"] += counts.failed_total
        sums["duplicates"] += counts.duplicates_at_most
        sums["retried"] += counts.retried_records
        sums["committed"] += counts.transactions_committed
        sums["aborted"] += counts.transactions_aborted
    assert min(sums.values()) > 40, sums
