"""What is learnt of simulated producers, offered by the engine's producers in simulated time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import pytest

from jobs.engine.batches.sections import Section
from jobs.engine.producing.account import Account
from jobs.engine.producing.batch import ProducerIdState
from jobs.engine.producing.delivery import Delivery, Produce
from jobs.engine.producing.producer import Producer
from jobs.engine.task.window import Window
from jobs.features.learn.reading import matching_topics
from jobs.features.learn.survey import Bounds, Surveyor
from metrics.features.learn.keys import learned_part
from metrics.features.learn.parts import NOW, TopicPart, parts_of
from metrics.traffic.clients import ProducerPattern
from tests.support.patterns import producer_pattern, schedule_of
from tests.support.scripted_admin import FakeTime
from tests.support.simulated_traffic import (
    BROKERS,
    END_S,
    Kind,
    ServedCluster,
    sent_batches,
    written,
)

pytestmark = pytest.mark.computes

PARTITIONS, SECONDS, SEED = 6, 40.0, 1
KINDS = {
    "small and hot": Kind(4, 250, 0.02, 200),
    "large and compressed": Kind(2, 20, 0.2, 5_000, codec="lz4"),
    "with keys": Kind(3, 60, 0.1, 500, is_keyed=True, has_ids=True, keys=50),
    "with keys, at random times": Kind(
        3, 60, 0.05, 500, is_keyed=True, has_ids=True, is_random=True
    ),
    "many and slow": Kind(40, 1, 0.005, 1_000, has_ids=True),
    "full batches": Kind(3, 100, 5.0, 1_000, batch_records=15),
    "at random times": Kind(4, 125, 0.04, 200, is_random=True),
}
NEAR = 0.05


def learnt(kind: Kind) -> tuple[int, ProducerPattern]:
    """The number of producers and their pattern, as a workload's keys state them."""
    admin, clock = ServedCluster({"topic": written(kind, PARTITIONS, SECONDS, SEED)}), FakeTime()
    survey = Surveyor(
        admin, matching_topics(admin, ["topic"]), Bounds(),
        clock=clock, now=lambda: END_S, pause=clock.pause,
    ).make()  # fmt: skip
    (part,) = parts_of([TopicPart.of(each, NOW) for each in survey.topics], 1)
    keys = learned_part(part, BROKERS)
    options = {
        path.partition(".")[2]: each.value
        for path, each in keys.keys.items()
        if path.startswith(("producer.", "payload.")) and "rate" not in path
    }
    (size,), rate = keys.value("message_bytes"), keys.value("producer.rate_records_per_s")
    return keys.producers.value, producer_pattern(size, rate, None, **options)


def offered(producers: int, pattern: ProducerPattern) -> Counter[str]:
    """What the engine's producers send in a window, whose requests are answered at once."""
    window = Window(0.0, SECONDS)
    account = Account(window, pattern.record_interval_s, brokers=range(BROKERS))
    leaders = [number % BROKERS for number in range(PARTITIONS)]
    delivery = Delivery(pattern, account, leaders, range(BROKERS))
    ends = [n * pattern.message_bytes for n in range(pattern.records_per_full_batch + 1)]
    for index in range(producers):
        own_id = ProducerIdState(index) if pattern.options.enable_idempotence else None
        section = Section(b"", ends, ends)
        times = schedule_of(pattern, index, 0.0)
        made = Producer(index, pattern, section, range(PARTITIONS), times, id_state=own_id)
        made.connect(range(BROKERS), pattern.options.max_in_flight)
        delivery.add(made)
    sent, now = Counter[str](), 0.0
    while (now := max(now, delivery.next_s)) < SECONDS:
        action = delivery.next(now)
        if isinstance(action, Produce):
            sent["requests"] += 1
            sent["batches"] += len(action.batches)
            sent["records"] += sum(each.records for each in action.batches)
            delivery.handle_produce_response(
                action.connection, {each.partition: 0 for each in action.batches}, 0, now
            )
    return sent


def planted(kind: Kind) -> Mapping[str, int]:
    """What the simulated producers sent."""
    sent = sent_batches(kind, PARTITIONS, SECONDS, random.Random(SEED))
    requests = {(at_ms, who, number % BROKERS) for at_ms, number, _, who in sent}
    records = sum(len(times) for _, _, times, _ in sent)
    return {"requests": len(requests), "batches": len(sent), "records": records}


@pytest.mark.parametrize("name", KINDS)
def test_a_copy_sends_as_many_requests_batches_and_records(name: str) -> None:
    wanted, found = planted(KINDS[name]), offered(*learnt(KINDS[name]))
    ratios = {what: found[what] / number for what, number in wanted.items()}
    assert ratios == pytest.approx(dict.fromkeys(ratios, 1.0), rel=NEAR), ratios
