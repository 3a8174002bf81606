"""Producers of a library that commit transactions by age, while the schedule continues."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from kafka.errors import KafkaError, KafkaTimeoutError

from jobs.engine.clients.library import (
    CommittingProducer,
    Record,
    Settled,
    TransactionCalls,
    TransactionEnd,
)
from jobs.engine.producing.transactions import TransactionError

RECORD: Record = (None, b"value", [])
ANSWERED_S = 5.0


class Scripted:
    """A library and its producer, which records its calls and answers when the test allows it.

    Attributes:
        calls: names of the calls, in order.
        fails: names of the calls that raise.
        has_room: whether it takes records.
        now: what its clock shows [s].
        commit_takes_s: simulated duration of each commit [s].
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails: set[str] = set()
        self.has_room = True
        self.throttle_ms = 7
        self.now = 100.0
        self.commit_takes_s = 0.0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.transactions = TransactionCalls(self, KafkaError)

    def clock(self) -> float:
        return self.now

    def begin_transaction(self) -> None:
        self._record_call("begin")

    def commit_transaction(self) -> None:
        assert self.may_answer.wait(ANSWERED_S)
        self.now += self.commit_takes_s
        self._record_call("commit")

    def abort_transaction(self) -> None:
        self._record_call("abort")

    def _record_call(self, call: str) -> None:
        self.calls.append(call)
        if call in self.fails:
            raise KafkaTimeoutError(f"{call} took too long")

    def offer(self, partition: int, record: Record, timestamp_ms: int, settled: Settled) -> bool:
        if self.has_room:
            self.calls.append(f"record to {partition}")
        return self.has_room

    def serve(self) -> None:
        """Do nothing, as no callback waits."""

    def end(self) -> None:
        self.calls.append("drop")

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def library() -> Scripted:
    return Scripted()


@pytest.fixture
def producer(library: Scripted) -> Iterator[CommittingProducer]:
    """A producer that commits transactions after 2 s."""
    made = CommittingProducer(library, 2.0, library.clock)
    yield made
    library.may_answer.set()
    made.close()


def offered(producer: CommittingProducer, partition: int = 0) -> bool:
    return producer.offer(partition, RECORD, 0, lambda _error: None)


def answered(producer: CommittingProducer) -> list[TransactionEnd]:
    """The reported ends of transactions once the running commit is over."""
    ending = producer._ending
    assert ending is not None
    ending.exception(ANSWERED_S)
    producer.serve()
    assert not producer.is_committing
    return producer.ends


def test_a_transaction_begins_with_its_first_record_and_is_committed_when_it_is_old(
    library: Scripted, producer: CommittingProducer
) -> None:
    producer.serve()
    assert library.calls == [], "no record was offered"
    library.commit_takes_s = 0.25
    assert offered(producer, 3) and offered(producer, 5)
    library.now += 1.9
    assert offered(producer, 3)
    producer.serve()
    assert not producer.is_committing
    library.now += 0.1
    producer.serve()
    assert producer.is_committing
    assert answered(producer) == [TransactionEnd(frozenset({3, 5}), 3, True, 0.25)]
    assert library.calls == ["begin", *[f"record to {each}" for each in (3, 5, 3)], "commit"]


def test_a_record_during_a_commit_waits_for_the_next_transaction(
    library: Scripted, producer: CommittingProducer
) -> None:
    offered(producer)
    library.may_answer.clear()
    library.now += 2.0
    assert not offered(producer), "it is old enough, and commits first"
    assert not offered(producer)
    producer.serve()
    assert producer.is_committing and producer.ends == []
    library.may_answer.set()
    assert len(answered(producer)) == 1
    assert offered(producer, 4)
    assert library.calls == ["begin", "record to 0", "commit", "begin", "record to 4"]
    library.now += 2.0
    producer.serve()
    assert answered(producer)[-1].partitions == {4}


def test_records_that_a_library_has_no_room_for_are_in_no_transaction(
    library: Scripted, producer: CommittingProducer
) -> None:
    library.has_room = False
    assert not offered(producer, 1)
    library.has_room = True
    assert offered(producer, 2)
    producer.end()
    assert answered(producer) == [TransactionEnd(frozenset({2}), 1, True, 0.0)]
    assert library.calls.count("begin") == 1


def test_the_end_of_the_load_commits_only_a_transaction_with_records(
    library: Scripted, producer: CommittingProducer
) -> None:
    producer.end()
    assert not producer.is_committing and library.calls == []
    offered(producer)
    producer.end()
    assert [each.is_commit for each in answered(producer)] == [True]
    assert "drop" not in library.calls, "the commit sends what is queued"
    assert producer.throttle_ms == 7


def test_a_transaction_that_cannot_be_committed_is_aborted_and_the_load_continues(
    library: Scripted, producer: CommittingProducer
) -> None:
    library.fails = {"commit"}
    offered(producer, 6)
    producer.end()
    assert answered(producer) == [TransactionEnd(frozenset({6}), 1, False, 0.0)]
    assert library.calls[-2:] == ["commit", "abort"]
    assert offered(producer)


def test_a_transaction_that_can_neither_be_committed_nor_aborted_is_an_error(
    library: Scripted, producer: CommittingProducer
) -> None:
    library.fails = {"commit", "abort"}
    offered(producer)
    producer.end()
    with pytest.raises(TransactionError, match=r"(?s)commit took.*nor aborted.*abort took.*Write"):
        answered(producer)


def test_errors_of_a_library_keep_its_message(library: Scripted) -> None:
    library.fails = {"begin"}
    calls = TransactionCalls(library, KafkaError, lambda error: f"it says: {error.args[0]}")
    with pytest.raises(TransactionError, match=r"^it says: begin took too long$"):
        calls.begin()
    with pytest.raises(KafkaTimeoutError):
        TransactionCalls(library, KeyError).begin()
