"""Reading of a member over a connection, and its lag."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from jobs.engine.consuming.group_member import Assigned, Moved, Revoked
from jobs.engine.consuming.ledger import SKIPPED, GroupLedger
from jobs.engine.consuming.reading import FetchChannel, Reader
from jobs.engine.consuming.stream import FetchAnswer
from jobs.engine.task.plan import Partitions
from jobs.engine.task.window import Window
from metrics.traffic.clients import ConsumerOptions
from metrics.trial.consumption import GroupWindow, ReadRange


class SomeMember:
    """The part of a member that a reader needs."""

    def __init__(self) -> None:
        self.positions: dict[int, int] = {}
        self.lookups: list[tuple[int, bool]] = []

    def look_up(self, partition: int, start: bool) -> None:
        self.lookups.append((partition, start))


class NoEncoder:
    """An encoder that returns the contents of a request."""

    partitions = Partitions(("t",), 10)
    options = ConsumerOptions(groups=1, check_crcs=False)

    def encode(self, _correlation: int, session: Any, named: Any, forgotten: Any) -> Any:
        return session, dict(named), forgotten


def channel_of(offsets: dict[int, int]) -> tuple[FetchChannel, Reader, Any]:
    """A connection to broker 1, which leads all partitions but 9."""
    member, ledger = SomeMember(), GroupLedger(0, 1, 0.001)
    ledger.window = Window(0.0, 100.0)
    reader = Reader(member, ledger, [1] * 9 + [2])  # type: ignore[arg-type]
    reader.apply(Assigned(offsets))
    channel = FetchChannel(("me", 1), reader, NoEncoder())  # type: ignore[arg-type]
    channel.wall_offset_s = 50.0
    return channel, reader, member


def test_a_member_fetches_the_partitions_that_the_broker_leads_from_its_positions() -> None:
    channel, reader, member = channel_of({3: 100, 4: 5, 9: 7})
    assert channel.next_request(0.0) == ((0, 0), {3: 100, 4: 5}, [])  # type: ignore[comparison-overlap]
    channel.begin_partition(3, 0, 250)
    channel.take_batch((100, 149, 50, 40_000, 40_100, 5_000), 1.0)
    channel.end_response(FetchAnswer(1, 0, 77, 0), 1.0)
    assert reader.positions[3].offset == 150 == member.positions[3]
    assert reader.lag == 100
    assert channel.next_request(0.0) == ((77, 1), {3: 150}, [])  # type: ignore[comparison-overlap]
    share = reader.ledger.share(reader.positions.values())
    assert (share.counts.records, share.counts.wire_bytes) == (50, 5_000)
    assert share.read_ranges == (ReadRange(3, 100, 150, 50),)
    reader.ledger.latency.fold()  # from the times in the batch; now is 51 s since the epoch
    assert reader.ledger.latency.histogram.quantile(50) == pytest.approx(10.95e6, rel=0.01)


def test_the_end_of_a_transaction_is_an_offset_without_a_record() -> None:
    channel, reader, member = channel_of({3: 100})
    channel.next_request(0.0)
    channel.begin_partition(3, 0, 250)
    channel.take_batch((100, 149, 50, 40_000, 40_100, 5_000), 1.0)
    channel.take_control_batch(150, 1)
    channel.take_control_batch(150, 1)  # a fetch from before it gets it again
    assert reader.positions[3].offset == 151 == member.positions[3]
    share = reader.ledger.share(reader.positions.values())
    assert (share.counts.records, share.counts.control_records) == (50, 1)
    assert share.read_ranges == (ReadRange(3, 100, 151, 51),), "no offset is missing"
    window = GroupWindow.of(share)
    assert (window.records_total, window.reread_records) == (50, 0)


def test_records_before_the_position_do_not_count_again() -> None:
    """A fetch from inside a batch gets the batch as a whole."""
    channel, reader, _ = channel_of({3: 120})
    channel.next_request(0.0)
    channel.begin_partition(3, 0, 250)
    channel.take_batch((50, 99, 50, 1, 1, 5_000), 1.0)
    channel.take_batch((100, 149, 50, 1, 1, 5_000), 1.0)
    assert reader.positions[3].read_range() == ReadRange(3, 120, 150, 30)


def test_answers_to_requests_before_a_rebalance_do_not_count() -> None:
    channel, reader, _ = channel_of({3: 0})
    channel.next_request(0.0)
    done = threading.Event()
    reader.apply(Revoked(done))
    assert done.is_set()
    assert channel.next_request(0.0) is None
    reader.apply(Assigned({3: 10}))
    channel.begin_partition(3, 0, 250)
    channel.take_batch((10, 19, 10, 1, 1, 100), 1.0)
    assert reader.positions[3].offset == 10
    assert reader.ledger.counts.rebalances == 1
    channel.end_response(FetchAnswer(1, 0, 77, 0), 1.0)
    assert channel.next_request(0.0) == ((77, 0), {3: 10}, [])  # type: ignore[comparison-overlap]


def test_a_moved_leader_is_looked_up_and_followed() -> None:
    channel, reader, member = channel_of({3: 0})
    channel.next_request(0.0)
    channel.begin_partition(3, 6, -1)
    channel.end_response(FetchAnswer(1, 0, 77, 0), 5.0)
    assert channel.retry_s > 5.0
    assert member.lookups == [(3, False)]
    assert dict(reader.ledger.counts.errors) == {"NotLeaderForPartitionError": 1}
    reader.apply(Moved({3: 2}, {}))
    assert channel.next_request(6.0) is None
    assert reader.offsets_led_by(2) == {3: 0}


def test_a_leader_is_looked_up_after_each_retriable_error() -> None:
    found = {56: [(3, False)], 78: [(3, False)], 1: [(3, True)], 29: [], 76: []}
    for code, lookups in found.items():
        channel, _, member = channel_of({3: 0})
        channel.next_request(0.0)
        channel.begin_partition(3, code, -1)
        assert member.lookups == lookups


def test_records_deleted_before_they_were_read_are_counted_as_skipped() -> None:
    _, reader, _ = channel_of({3: 10})
    reader.apply(Moved({}, {3: 60}))
    assert reader.positions[3].offset == 60
    assert reader.ledger.counts.errors[SKIPPED] == 50


def test_a_member_reaches_the_targets_of_its_own_partitions_only() -> None:
    _, reader, _ = channel_of({3: 10, 4: 10})
    assert reader.has_reached({3: 10, 4: 10, 5: 99})
    assert not reader.has_reached({3: 11})
    reader.apply(Revoked(threading.Event()))
    assert not reader.has_reached({}), "another member may get these partitions"
