"""Sequences of idempotent producers, and their ids from brokers and from coordinators."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.engine.batches.pool import BatchPool
from jobs.engine.producing.batch import (
    SEQUENCES,
    Batch,
    EpochExhaustedError,
    ProducerIdState,
    Trouble,
)
from jobs.engine.producing.delivery import Reopen, Replace, SendControlRequest
from jobs.engine.producing.producer import Connection
from jobs.engine.producing.protocol import FindCoordinator, InitProducerId
from jobs.engine.producing.registration import ProducerIdError, Registration
from tests.support.driven_delivery import DrivenDelivery
from tests.support.patterns import producer_pattern

POOL = BatchPool(producer_pattern(pool_bytes=65_536))

LOADING, NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT = 14, 15, 16, 51
NO_RIGHT, NOT_ALLOWED, TIMEOUT_TOO_LARGE = 31, 53, 50
IDEMPOTENT: dict[str, Any] = {"enable_idempotence": True, "acks": "all"}
COMMITS = IDEMPOTENT | {"transaction_duration_ms": 100.0}
FIND, GIVE = FindCoordinator(), InitProducerId()
AT = ("host", 9092)


def _batch(records: int = 10, partition: int = 3) -> Batch:
    return Batch(partition, 0, records, POOL.section_of(0), 0.0)


def test_sequences_count_records_of_each_partition_and_wrap_as_in_kafka() -> None:
    state, first = ProducerIdState(9), _batch()
    stamps = [state.stamp(each) for each in (first, _batch(), _batch(), first)]
    assert stamps == [(0, 0), (0, 10), (0, 20), (0, 0)], "a batch keeps its stamp"
    assert state.stamp(_batch(partition=4)) == (0, 0)
    state._next[3] = SEQUENCES - 4
    assert state.stamp(_batch()) == (0, SEQUENCES - 4)
    assert state.stamp(_batch()) == (0, 6)


def test_the_next_expected_batch_is_known_and_only_the_last_sequence_can_be_taken_back() -> None:
    state = ProducerIdState(9)
    first, second = _batch(), _batch()
    state.stamp(first)
    state.stamp(second)
    assert state.is_next(first) and not state.is_next(second)
    state.acknowledge(first)
    assert state.is_next(second)
    assert not state.withdraw(first)
    assert state.withdraw(second)
    assert state.stamp(_batch()) == (0, 10)


def test_a_new_epoch_makes_old_stamps_and_doubtful_copies_count() -> None:
    state, batch = ProducerIdState(9), _batch()
    state.stamp(batch)
    batch.trouble = Trouble(failures=1, is_unsure=True)
    state.renew(batch)
    assert batch.stamp == (0, 0), "still current"
    state.start_again(3)
    assert not state.is_current(batch)
    state.renew(batch)
    assert (batch.trouble.copies, batch.trouble.is_unsure) == (1, False)
    assert state.stamp(batch) == (1, 0)
    assert state.is_next(batch)
    assert state.stamp(_batch(partition=4)) == (0, 0), "other partitions continue"


def test_epochs_end() -> None:
    state = ProducerIdState(9)
    state._epochs[3] = 32_767
    with pytest.raises(EpochExhaustedError, match="partition 3 lost its sequence 32768 times"):
        state.start_again(3)


# --- registration -----------------------------------------------------------------------


class Registering:
    """A registration with a deadline of 20 s, whose brokers and time the test controls."""

    def __init__(self, producers: int = 1, **options: Any) -> None:
        made = DrivenDelivery(producers=producers, **options)
        self.producers = made.delivery.producers
        self.registration = Registration(self.producers, 0.0, 20.0)

    def asked(self, now: float) -> list[tuple[int, int, Any]]:
        """(Producer, broker, request or kind of action) of the actions until now."""
        found = []
        while (action := self.registration.next(now)) is not None:
            connection, what = action.connection, type(action).__name__
            found.append(
                (
                    connection.producer.index,
                    connection.broker,
                    action.request if isinstance(action, SendControlRequest) else what,
                )
            )
            if isinstance(action, Replace):
                self.registration.handle_replaced(connection, now)
        return found

    def way(self, producer: int, broker: int) -> Connection:
        return self.producers[producer].connections[broker]

    def answer(self, producer: int, broker: int, now: float, code: int, content: Any) -> None:
        way = self.way(producer, broker)
        self.registration.handle_coordinator_response(way, code, content, now)

    def ids(self) -> list[tuple[int, int]]:
        """Producer id and epoch of each producer."""
        states = [each.id_state for each in self.producers]
        return [(each.producer_id, each.epoch) for each in states if each is not None]


def test_every_producer_gets_an_id_while_the_broker_is_loading() -> None:
    made = Registering(producers=3, **IDEMPOTENT)
    assert made.asked(0.0) == [(0, 1, GIVE), (1, 2, GIVE), (2, 1, GIVE)], "brokers in turn"
    made.answer(0, 1, 0.1, 0, (7, 0))
    made.answer(1, 2, 0.1, LOADING, (-1, -1))
    made.answer(2, 1, 0.1, 0, (9, 0))
    assert (made.asked(0.14), made.asked(0.16)) == ([], [(1, 2, GIVE)])
    assert not made.registration.is_over
    made.answer(1, 2, 0.2, 0, (8, 0))
    assert made.registration.is_over and made.ids() == [(7, 0), (8, 0), (9, 0)]


def test_each_transactional_id_is_registered_with_its_own_coordinator() -> None:
    made = Registering(producers=2, **COMMITS)
    assert made.asked(0.0) == [(0, 1, FIND), (1, 2, FIND)]
    made.answer(0, 1, 0.1, 0, (2, AT))
    made.answer(1, 2, 0.1, 0, (2, AT))
    assert made.asked(0.1) == [(1, 2, GIVE), (0, 2, GIVE)]
    made.answer(0, 2, 0.2, 0, (11, 3))
    made.answer(1, 2, 0.2, 0, (12, 0))
    assert made.registration.is_over and made.ids() == [(11, 3), (12, 0)]
    assert [each.transactions and each.transactions.coordinator for each in made.producers] == [
        2,
        2,
    ]


def test_a_coordinator_that_is_not_ready_or_elsewhere_is_searched_again_and_named() -> None:
    made = Registering(**COMMITS)
    made.asked(0.0)
    made.answer(0, 1, 0.0, NOT_AVAILABLE, (-1, AT))
    now = 1.0
    for error in (LOADING, NOT_COORDINATOR, CONCURRENT):
        assert made.asked(now) == [(0, 1, FIND)]
        made.answer(0, 1, now, 0, (2, AT))
        assert made.asked(now) == [(0, 2, GIVE)]
        made.answer(0, 2, now, error, (-1, -1))
        now += 1.0
    with pytest.raises(
        ProducerIdError, match=r"1 producers got no coordinator.*leaders for the topic"
    ):
        Registering(**COMMITS).asked(20.1)
    made.asked(now)
    made.answer(0, 1, now, 0, (9, AT))
    assert made.asked(now + 0.1) == [(0, 1, FIND)], "it joined later"
    wanted = r"1 producers got no coordinator.* brokers \[1, 2\],.*broker 9 at host:9092, which"
    with pytest.raises(ProducerIdError, match=wanted):
        made.asked(20.1)


def test_a_refusal_names_the_missing_rights_and_silence_the_remedy() -> None:
    for options, code, words in (
        (IDEMPOTENT, NO_RIGHT, "refused a producer id .*the right to Write"),
        (COMMITS, NOT_ALLOWED, "refused a coordinator.*to Describe and Write on transactional ids"),
        (COMMITS, TIMEOUT_TOO_LARGE, r"transaction\.max\.timeout\.ms"),
    ):
        made = Registering(**options)
        made.asked(0.0)
        with pytest.raises(ProducerIdError, match=words):
            made.answer(0, 1, 0.1, code, (-1, -1))
    made = Registering(**IDEMPOTENT)
    made.asked(0.0)
    with pytest.raises(ProducerIdError, match=r"1 producers got no producer id.*the controller"):
        made.asked(20.1)


def test_a_lost_connection_is_opened_again_and_another_broker_asked_meanwhile() -> None:
    made = Registering(**IDEMPOTENT)
    made.asked(0.0)
    made.registration.handle_lost(made.way(0, 1), "ConnectionClosed", 0.1)
    assert made.asked(0.2) == [(0, 2, GIVE)], "as its connection is open"
    made.registration.handle_lost(made.way(0, 2), "ConnectionClosed", 0.3)
    assert made.asked(0.4) == [(0, 1, Reopen.__name__)]
    made.registration.handle_reopened(made.way(0, 1))
    assert made.asked(0.5) == [(0, 1, Replace.__name__), (0, 1, GIVE)]
    made.registration.handle_lost(made.way(0, 1), "ConnectionClosed", 0.6)
    with pytest.raises(ProducerIdError, match="a broker closed the connection instead of sending"):
        made.asked(20.1)


def test_successors_that_a_delivery_left_are_used_first() -> None:
    made = DrivenDelivery(**IDEMPOTENT)
    made.lose(made.two, 0.1)
    made.reopen(made.one, 0.2)
    made.reopen(made.two, 0.2)
    registration = Registration(made.delivery.producers, 1.0, 20.0)
    registration.handle_lost(made.one, "ConnectionClosed", 1.0)
    actions = [registration.next(1.0) for _ in range(2)]
    assert actions == [Replace(made.two), Replace(made.one)]
