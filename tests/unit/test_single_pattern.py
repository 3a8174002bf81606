"""One kind of traffic is unchanged by mixes: its bytes, its rows, and its work for each batch."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from jobs.cluster.topic_set import TopicSet
from jobs.engine.batches.pool import pool_of
from jobs.engine.producing.loop import growing_schedule
from jobs.engine.producing.producer import Producer
from jobs.engine.producing.protocol import ProduceEncoder
from jobs.engine.stage import run_task
from jobs.engine.task.plan import TrialPlan
from jobs.trials.load import plans_of_parts
from metrics.columns import row_of
from metrics.planning.load_needs import share_slots
from metrics.tables.schema import part_rows
from metrics.traffic.axes import NP
from metrics.traffic.mix import mix_of
from metrics.traffic.pattern import TopicOptions, TrafficPattern
from metrics.trial.client import merge
from tests.support.listening_broker import BROKER_ID, PARTITIONS, ListeningBroker
from tests.support.patterns import pattern, plan
from tests.support.rows import trial
from tests.support.threads_barrier import ThreadsBarrier

TOPIC = TopicOptions(partitions_per_broker=4, replication_factor=1)
PATTERNS: dict[str, TrafficPattern] = {
    "plain": pattern(3, rate_records_per_s=500.0, linger_ms=20.0, topic=TOPIC),
    "keyed": pattern(
        2, message_bytes=300, rate_records_per_s=200.0, linger_ms=50.0, key_bytes=8, key_count=50,
        headers=1, header_bytes=4, topic=TOPIC,
    ),
    "random": pattern(
        2, message_bytes=700, rate_records_per_s=300.0, linger_ms=5.0, arrivals="poisson",
        batch_size=4_096, sticky_partition="round_robin", topic=TOPIC,
    ),
}  # fmt: skip
BEFORE = {
    "plain": "70c1f89cf9041ad464909a73edeb7e01271af3d5544badc84e928d2041b7325d",
    "keyed": "f045c104177113dbb421f82492dc14ce0d747cb32f098d39f7b134266bf47db9",
    "random": "9d2270330854d816ae5643131c56abb25023ba30a0b643892b23d5d7e952102f",
}
"""SHA-256 of the requests of three seconds, as they were before mixes."""


def single(load: TrafficPattern) -> TrialPlan:
    """The plan of the only task of a load of one pattern."""
    shares = share_slots(load, 1)
    topics = TopicSet(("t",), 1_000, dict.fromkeys(range(4), (7,)))
    (own,) = plans_of_parts(plan(pattern=load, tasks=1), topics, shares)
    return own


def requests(own: TrialPlan, seconds: float = 3.0) -> list[bytes]:
    """The requests of all producers, each batch when it is ready, from time 100 on."""
    pool = pool_of(own.pattern.producer)
    found: list[bytes] = []
    for index in own.producers_of(0):
        topic, partitions = own.partitions.topic_of(index)
        producer = Producer(
            index, own.pattern.producer, pool.section_of(index), partitions,
            growing_schedule(own, index, 100.0), own.producer_name(index),
        )  # fmt: skip
        options = own.pattern.producer.options
        encoder = ProduceEncoder(
            topic, own.producer_name(index), options.acks_code, options.request_timeout_ms
        )
        while (ready_s := producer.ready_s) < 100.0 + seconds:
            batch = producer.seal(producer.records_by(ready_s), ready_s)
            header, body = batch.section.batch_of(batch.records, int(1_000 * batch.due_s))
            sent = encoder.encode(len(found), [(batch.partition, header, body)])
            found.append(b"".join(map(bytes, sent)))
    return found


@pytest.mark.parametrize("name", PATTERNS)
def test_the_bytes_are_those_of_versions_without_mixes(name: str) -> None:
    assert hashlib.sha256(b"".join(requests(single(PATTERNS[name])))).hexdigest() == BEFORE[name]


def test_a_row_has_no_mix_and_a_mix_of_one_part_has_the_row_of_the_part() -> None:
    """All columns but those that name the mix, so that sums and means of one are the one."""
    assert not row_of(trial())["mix"] and part_rows(trial()) == []
    alone = dataclasses.replace(NP.apply(PATTERNS["keyed"], 5), brokers=3)
    row, of_mix = row_of(alone), row_of(mix_of([alone.as_part("only")]))
    assert {name for name in row if row[name] != of_mix[name]} <= {"mix", "point_bpm"}
    assert dict(of_mix["mix"]).keys() == {"only"}


STEPS_OF_MIXES = {
    *(("plan.py", name) for name in ("own_task", "stage_task", "hosts", "placed")),
    ("pattern.py", "loads"),
    ("climb.py", "shares"),
}
"""Functions that are there for mixes, beside the modules mix.py and load_needs.py."""


def calls_of_parts(records_per_s: float) -> tuple[Counter[str], int]:
    """Calls of code that is there for mixes while a task runs, and the requests that it sent."""
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call":
            return
        name, file = frame.f_code.co_name, Path(frame.f_code.co_filename).name
        if file in ("mix.py", "load_needs.py") or (file, name) in STEPS_OF_MIXES:
            calls[f"{file}:{name}"] += 1

    load = pattern(2, rate_records_per_s=records_per_s, linger_ms=1.0, pool_bytes=200_000)
    with ListeningBroker() as broker, ThreadPoolExecutor(1) as pool:
        brokers = {BROKER_ID: ("127.0.0.1", broker.ports[BROKER_ID])}
        own = plan(pattern=load, tasks=1, brokers=brokers, leaders=(BROKER_ID,) * PARTITIONS)

        def run() -> Any:
            sys.setprofile(count)
            try:
                return run_task(own, ThreadsBarrier.of(1)[0])
            finally:
                sys.setprofile(None)

        report = pool.submit(run).result()
    assert report.error is None
    return calls, merge([report]).counts.produce_requests or 0


def test_what_mixes_added_is_not_called_for_each_batch() -> None:
    few, few_requests = calls_of_parts(20.0)
    many, many_requests = calls_of_parts(400.0)
    assert many_requests > 3 * few_requests
    assert few == many == {"plan.py:own_task": 1, "plan.py:stage_task": 1, "plan.py:placed": 1}
