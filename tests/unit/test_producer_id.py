"""Sequences of idempotent producers, and requests for producer ids."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse

from jobs.engine.batches.pool import BatchPool
from jobs.engine.network.transport import PlainTransport
from jobs.engine.producing.batch import Batch, Trouble
from jobs.engine.producing.control_requests import ProducerIdError, request_producer_ids
from jobs.engine.producing.producer_id import SEQUENCES, EpochExhaustedError, ProducerIdState
from tests.support.patterns import producer_pattern
from tests.support.processes import PATIENCE_S

POOL = BatchPool(producer_pattern(pool_bytes=65_536))

LOADING = 14
NOT_ALLOWED = 31


def _batch(records: int = 10, partition: int = 3) -> Batch:
    return Batch(partition, 0, records, POOL.section_of(0), 0.0)


def test_sequences_count_records_of_each_partition() -> None:
    state = ProducerIdState(9)
    assert [state.stamp(_batch()) for _ in range(3)] == [(0, 0), (0, 10), (0, 20)]
    assert state.stamp(_batch(partition=4)) == (0, 0)


def test_a_batch_keeps_its_stamp() -> None:
    state, batch = ProducerIdState(9), _batch()
    first = state.stamp(batch)
    state.stamp(_batch())
    assert state.stamp(batch) == first


def test_sequences_wrap_as_in_kafka() -> None:
    state = ProducerIdState(9)
    state._next[3] = SEQUENCES - 4
    assert state.stamp(_batch()) == (0, SEQUENCES - 4)
    assert state.stamp(_batch()) == (0, 6)


def test_the_next_expected_batch_is_known() -> None:
    state = ProducerIdState(9)
    first, second = _batch(), _batch()
    state.stamp(first)
    state.stamp(second)
    assert state.is_next(first) and not state.is_next(second)
    state.acknowledge(first)
    assert state.is_next(second)


def test_only_the_last_sequence_can_be_taken_back() -> None:
    state = ProducerIdState(9)
    first, second = _batch(), _batch()
    state.stamp(first)
    state.stamp(second)
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
    assert state.stamp(_batch(partition=4)) == (0, 0), "other partitions continue"


def test_after_a_new_epoch_the_first_batch_is_the_next_one_again() -> None:
    state, before, after = ProducerIdState(9), _batch(), _batch()
    state.stamp(before)
    state.acknowledge(before)
    state.start_again(3)
    assert state.stamp(after) == (1, 0)
    assert state.is_next(after)


def test_epochs_end() -> None:
    state = ProducerIdState(9)
    state._epochs[3] = 32_767
    with pytest.raises(EpochExhaustedError, match="partition 3 lost its sequence 32768 times"):
        state.start_again(3)


@contextmanager
def _broker(*answers: tuple[int, int] | None) -> Iterator[PlainTransport]:
    """A broker that answers requests for a producer id with (error code, id), or disconnects."""
    client, own = socket.socketpair()

    def serve() -> None:
        for answer in answers:
            size = int.from_bytes(own.recv(4, socket.MSG_WAITALL), "big")
            frame = own.recv(size, socket.MSG_WAITALL)
            if answer is None:
                own.shutdown(socket.SHUT_RDWR)
                return
            request = InitProducerIdRequest.decode(frame, version=1, header=True)
            assert request.transactional_id is None
            code, producer_id = answer
            response = InitProducerIdResponse(
                throttle_time_ms=0,
                error_code=code,
                producer_id=producer_id,
                producer_epoch=0,
                version=1,
            )
            response.with_header(correlation_id=request.header.correlation_id)
            own.sendall(bytes(response.encode(framed=True, header=True)))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    client.setblocking(False)
    yield PlainTransport(client)
    client.close()
    thread.join(PATIENCE_S)
    own.close()


def test_every_producer_gets_an_id_while_the_broker_is_loading() -> None:
    with _broker((0, 7)) as one, _broker((LOADING, -1), (0, 8)) as other:
        assert request_producer_ids({"a": one, "b": other}, PATIENCE_S) == {"a": 7, "b": 8}


def test_a_broker_that_refuses_disconnects_or_is_silent_is_an_error() -> None:
    with _broker((NOT_ALLOWED, -1)) as way, pytest.raises(ProducerIdError, match="the right to"):
        request_producer_ids({"a": way}, PATIENCE_S)
    with _broker(None) as way, pytest.raises(ProducerIdError, match="closed the connection"):
        request_producer_ids({"a": way}, PATIENCE_S)
    with _broker() as way, pytest.raises(ProducerIdError, match="1 producers got no producer id"):
        request_producer_ids({"a": way}, 0.2)
