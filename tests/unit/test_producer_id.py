"""Sequences of idempotent producers, and their ids from brokers and from coordinators."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse

from jobs.engine.batches.pool import BatchPool
from jobs.engine.network.transport import PlainTransport
from jobs.engine.producing import control_requests
from jobs.engine.producing.control_requests import (
    ProducerIdError,
    Registered,
    TransactionalId,
    register_transactional,
    request_producer_ids,
)
from jobs.engine.producing.protocol import (
    SEQUENCES,
    Batch,
    EpochExhaustedError,
    ProducerIdState,
    Trouble,
)
from tests.support.patterns import producer_pattern
from tests.support.processes import PATIENCE_S

POOL = BatchPool(producer_pattern(pool_bytes=65_536))

LOADING, NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT = 14, 15, 16, 51
NO_RIGHT, NOT_ALLOWED, TIMEOUT_TOO_LARGE = 31, 53, 50
ANSWERED_S = 5.0
FIND, INIT = FindCoordinatorRequest.API_KEY, InitProducerIdRequest.API_KEY

Answer = tuple[int, tuple[int, ...]]
"""(API key of the request, answer): (error, broker) for a search, and (error, producer id,
epoch) for an id."""


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


# --- requests for ids -------------------------------------------------------------------


def found(broker: int, error: int = 0) -> Answer:
    return FIND, (error, broker)


def given(producer_id: int, epoch: int = 0, error: int = 0) -> Answer:
    return INIT, (error, producer_id, epoch)


class Broker:
    """A broker that follows a script over one connection, and may disconnect at its end.

    Attributes:
        requests: (transactional id, its timeout [ms] or None) of each request.
    """

    def __init__(self, script: Sequence[Answer], hangs_up: bool = False) -> None:
        self.requests: list[tuple[str | None, int | None]] = []
        self._script = script
        self._hangs_up = hangs_up
        client, self._own = socket.socketpair()
        client.setblocking(False)
        self._client = client
        self.transport = PlainTransport(client)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(ANSWERED_S)

    def close(self) -> None:
        self._client.close()
        self.join()
        self._own.close()

    def _serve(self) -> None:
        with suppress(OSError):  # the client has given up
            for api_key, answer in self._script:
                size = int.from_bytes(self._own.recv(4, socket.MSG_WAITALL), "big")
                frame = self._own.recv(size, socket.MSG_WAITALL)
                if not frame:
                    return
                if not answer:
                    break
                self._own.sendall(self._answer(api_key, answer, frame))
            if self._hangs_up:
                self._own.shutdown(socket.SHUT_RDWR)

    def _answer(self, api_key: int, answer: tuple[int, ...], frame: bytes) -> bytes:
        assert int.from_bytes(frame[:2], "big") == api_key, "requests in this order"
        response: Any
        if api_key == FIND:
            search = FindCoordinatorRequest.decode(frame, version=1, header=True)
            assert search.key_type == 1, "of a transaction"
            self.requests.append((search.key, None))
            response = FindCoordinatorResponse(
                throttle_time_ms=0, error_code=answer[0], error_message=None,
                node_id=answer[1], host="h", port=1, version=1,
            )  # fmt: skip
            response.with_header(correlation_id=search.header.correlation_id)
        else:
            wanted = InitProducerIdRequest.decode(frame, version=1, header=True)
            self.requests.append((wanted.transactional_id, wanted.transaction_timeout_ms))
            response = InitProducerIdResponse(
                throttle_time_ms=0, error_code=answer[0], producer_id=answer[1],
                producer_epoch=answer[2], version=1,
            )  # fmt: skip
            response.with_header(correlation_id=wanted.header.correlation_id)
        return bytes(response.encode(framed=True, header=True))


@contextmanager
def cluster(scripts: Mapping[tuple[str, int], Sequence[Answer]]) -> Iterator[dict[Any, Broker]]:
    """A connection for each (transactional id, broker id), and the broker at its other end."""
    with ExitStack() as stack:
        brokers = {}
        for way, script in scripts.items():
            brokers[way] = Broker(script)
            stack.callback(brokers[way].close)
        yield brokers


def registered(
    brokers: dict[Any, Broker], *names: str, timeout_s: float = ANSWERED_S
) -> dict[str, Registered]:
    transports = {way: broker.transport for way, broker in brokers.items()}
    ids = [TransactionalId(name, 60_000 + number, name) for number, name in enumerate(names)]
    return register_transactional(transports, ids, timeout_s)


def test_every_producer_gets_an_id_while_the_broker_is_loading() -> None:
    scripts = {("a", 1): [given(7)], ("b", 1): [given(-1, error=LOADING), given(8)]}
    with cluster(scripts) as brokers:
        ways = {name: broker.transport for (name, _), broker in brokers.items()}
        assert request_producer_ids(ways, PATIENCE_S) == {"a": 7, "b": 8}
        assert {name for each in brokers.values() for name, _ in each.requests} == {None}


@pytest.mark.parametrize(
    ("script", "hangs_up", "words"),
    [
        ([given(-1, error=NO_RIGHT)], False, "the right to"),
        ([(INIT, ())], True, "closed the connection"),
        ([], False, "1 producers got no producer id"),
    ],
)
def test_a_broker_that_refuses_disconnects_or_is_silent_is_an_error(
    script: Sequence[Answer], hangs_up: bool, words: str
) -> None:
    broker = Broker(script, hangs_up)
    try:
        with pytest.raises(ProducerIdError, match=words):
            request_producer_ids({"a": broker.transport}, PATIENCE_S if script or hangs_up else 0.2)
    finally:
        broker.close()


def test_each_id_is_registered_with_its_own_coordinator() -> None:
    # The first id uses broker 1, and the second broker 2, to share the requests.
    scripts = {
        ("a", 1): [found(2)], ("a", 2): [given(11, 3)],
        ("b", 1): [], ("b", 2): [found(2), given(12)],
    }  # fmt: skip
    with cluster(scripts) as brokers:
        ids = {"a": Registered(2, 11, 3), "b": Registered(2, 12, 0)}
        assert registered(brokers, "a", "b") == ids
        assert brokers["a", 1].requests == [("a", None)]
        assert brokers["a", 2].requests == [("a", 60_000)]
        assert brokers["b", 2].requests == [("b", None), ("b", 60_001)]


@pytest.mark.parametrize("error", [LOADING, NOT_COORDINATOR, CONCURRENT])
def test_requests_to_a_coordinator_that_is_not_ready_are_repeated(error: int) -> None:
    scripts = {
        ("a", 1): [found(-1, NOT_AVAILABLE), found(2), found(1), given(5, 1)],
        ("a", 2): [given(-1, -1, error)],
    }
    with cluster(scripts) as brokers:
        assert registered(brokers, "a") == {"a": Registered(1, 5, 1)}
        assert len(brokers["a", 1].requests) == 4, "until it, and then its new place is found"


def test_a_refused_coordinator_names_the_missing_rights() -> None:
    wanted = r"refused a coordinator.*the rights to Describe and Write on transactional ids"
    for script in ([found(-1, NOT_ALLOWED)], [found(1), given(-1, -1, TIMEOUT_TOO_LARGE)]):
        with cluster({("a", 1): script}) as brokers, pytest.raises(ProducerIdError, match=wanted):
            registered(brokers, "a")


def test_a_coordinator_on_a_broker_that_joined_later_is_searched_again_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept = [0.0]  # only sleeps take time
    clock = SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append)
    monkeypatch.setattr(control_requests, "time", clock)
    with cluster({("a", 1): [found(9), found(1), given(5, 1)]}) as brokers:
        assert registered(brokers, "a") == {"a": Registered(1, 5, 1)}
    wanted = r"1 producers got no coordinator.* brokers \[1\],.*broker 9 at h:1 has it; repeat"
    stays = [found(9)] * 100
    with cluster({("a", 1): stays}) as brokers, pytest.raises(ProducerIdError, match=wanted):
        registered(brokers, "a", timeout_s=1.0)


def test_an_endless_search_and_a_closed_connection_are_errors() -> None:
    wanted = "1 producers got no coordinator.*__transaction_state to have leaders"
    never = [found(-1, NOT_AVAILABLE)] * 100
    with cluster({("a", 1): never}) as brokers, pytest.raises(ProducerIdError, match=wanted):
        registered(brokers, "a", timeout_s=0.2)
    scripts: tuple[list[Answer], ...] = ([], [found(1)])
    for before in scripts:
        broker = Broker(before, hangs_up=True)
        if not before:
            broker.join()  # the connection is closed before the write
        try:
            with pytest.raises(ProducerIdError, match="closed the connection"):
                registered({("a", 1): broker}, "a")
        finally:
            broker.close()
