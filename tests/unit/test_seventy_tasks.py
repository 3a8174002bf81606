"""Seventy tasks of one load, with the engine's own code, control channels and connections."""

from __future__ import annotations

import pytest

from jobs.trials.control_server import ControlServer
from metrics.trial.client import merge
from tests.support.listening_broker import BROKER_ID, PARTITIONS, ListeningBroker
from tests.support.patterns import plan
from tests.support.threads_barrier import run_stage

pytestmark = pytest.mark.long

TASKS = 70


def test_seventy_tasks_start_together_and_none_is_lost_at_the_end() -> None:
    with (
        ListeningBroker() as broker,
        ControlServer("127.0.0.1", "127.0.0.1") as server,
        server.channel(TASKS) as channel,
    ):
        ordered = plan(
            producers=2 * TASKS,
            tasks=TASKS,
            brokers={BROKER_ID: ("127.0.0.1", broker.ports[BROKER_ID])},
            leaders=(BROKER_ID,) * PARTITIONS,
            rate_records_per_s=5.0,
            pool_bytes=20_000,
            start_lead_s=5.0,
            warmup_s=0.5,
            measure_s=4.0,
            control=channel.address,
        )
        rows = run_stage(ordered)
    assert [row.error for row in rows if row.error] == []
    assert len({(row.start_s, row.end_s) for row in rows}) == 1
    assert channel.failure is None
    client = merge(rows)
    assert client.counts.acked_total == broker.records > 0
    assert len(client.counts.by_producer.acked) == 2 * TASKS
    assert sum(len(each.host_samples) > 0 for each in rows) == 1, "one task watches its host"
