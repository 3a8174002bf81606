"""Records with keys: each goes to a partition of its own, and a request holds several batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from jobs.engine.producing.delivery import Action, Produce
from jobs.engine.producing.producer import PartitionQueue
from metrics.traffic.clients import ProducerOptions
from tests.support.driven_delivery import DrivenDelivery

LEADERS = (1, 2, 1, 2, 1, 2)


def driven(linger_ms: float = 3_000.0, rate: float = 10.0, **options: Any) -> DrivenDelivery:
    return DrivenDelivery(
        leaders=LEADERS, full=100, rate=rate, end_s=1_000.0, linger_ms=linger_ms,
        sticky_partition="keys", acks="0", **options,
    )  # fmt: skip


def requests(actions: Sequence[Action]) -> list[Produce]:
    return [each for each in actions if isinstance(each, Produce)]


def test_a_request_has_a_batch_for_each_partition_of_its_broker_that_gets_records() -> None:
    made = driven()
    sent = requests(made.until(900.0))
    assert len(sent) == pytest.approx(900 / 3.1, abs=3)
    for request in sent:
        partitions = [each.partition for each in request.batches]
        assert len(set(partitions)) == len(partitions)
        assert {LEADERS[each] for each in partitions} == {request.connection.broker}
        assert sum(each.records for each in request.batches) == 31
        first = request.batches[0].first
        assert [each.first - first for each in request.batches] == [
            sum(each.records for each in request.batches[:place])
            for place in range(len(request.batches))
        ]
    assert made.counts.sent_records == made.producer.opened


def records_by_partition(sent: Sequence[Produce]) -> Counter[int]:
    records: Counter[int] = Counter()
    for request in sent:
        for batch in request.batches:
            records[batch.partition] += batch.records
    return records


def test_the_number_of_batches_is_that_of_records_that_choose_at_random() -> None:
    """Of 3 partitions, 4 records choose 3 (1 - (2/3)^4) = 2.41 on average."""
    sent = requests(driven(linger_ms=300.0).until(900.0))
    batches = sum(len(each.batches) for each in sent)
    assert batches / len(sent) == pytest.approx(3 * (1 - (2 / 3) ** 4), rel=0.03)
    records = records_by_partition(sent)
    assert max(records.values()) < 1.15 * min(records.values())
    records = records_by_partition(
        requests(driven(linger_ms=300.0, partition_skew=1.0).until(900.0))
    )
    whole = sum(records.values()) / sum(1 / n for n in range(1, 7))
    for partition in range(6):
        assert records[partition] / whole == pytest.approx(1 / (partition + 1), rel=0.12)
    made = driven(linger_ms=300.0)
    made.producer.queues[2] = PartitionQueue(made.producer, 2, made.two)
    assert records_by_partition(requests(made.until(100.0))).keys() == {0, 1, 3, 4, 5}


def test_after_a_wait_for_room_a_request_has_no_second_batch_of_a_partition() -> None:
    made = DrivenDelivery(
        leaders=(1,) * 6, full=20, rate=10.0, end_s=1_000.0, linger_ms=500.0,
        sticky_partition="keys", max_in_flight=1,
    )  # fmt: skip
    now_s, divided = 1.0, 0
    made.until(now_s)
    for _ in range(40):
        now_s += 3.5
        assert requests(made.until(now_s)) == []
        full = sum(bool(queue.batches) for queue in made.one.queues.values())
        made.answer(made.one, now_s)
        (later,) = requests(made.until(now_s + 0.01))
        partitions = [each.partition for each in later.batches]
        assert len(set(partitions)) == len(partitions)
        divided += len(partitions) > full >= 1
    assert divided > 10, "open batches are divided beside full ones"


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"client": "librdkafka"}, "client librdkafka; expected client wire"),
        (
            {"transaction_duration_ms": 100.0, "enable_idempotence": True, "acks": "all"},
            "transaction_duration_ms 100; expected sticky_partition random or round_robin",
        ),
    ],
)
def test_keys_need_the_engines_own_client_without_transactions(
    other: dict[str, Any], named: str
) -> None:
    options = ProducerOptions(rate_bytes_per_s=1.0, sticky_partition="keys", **other)
    with pytest.raises(ValueError, match=f"sticky_partition is keys and {named}"):
        options.require_consistent()
