"""A mix of three parts, and a load of some parts on a broker of this process."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from jobs.cluster.topic_plan import Assignment
from jobs.cluster.topic_set import TopicSet
from jobs.config.loading import load_workload
from jobs.engine.stage import run_task
from jobs.engine.task.plan import StagePlan
from jobs.trials.load import plans_of_parts
from metrics.planning.load_needs import share_slots
from metrics.traffic.mix import mix_of
from metrics.traffic.pattern import TrafficPattern
from metrics.traffic.profile import Climb
from metrics.trial.client import ClientWindow, merge
from tests.support.listening_broker import BROKER_ID, PARTITIONS, ListeningBroker
from tests.support.patterns import plan
from tests.support.threads_barrier import ThreadsBarrier

MIX = str(Path(__file__).parents[1] / "data" / "mixes" / "three-parts.yaml")
WHOLE: TrafficPattern = load_workload(MIX).pattern(1, 3)
"""47 producers of orders, clicks and images, with 2.8 MB/s together, on three brokers."""


def run_parts(
    parts: Sequence[TrafficPattern], slots: int, climb: Climb | None = None
) -> tuple[ClientWindow, ListeningBroker]:
    """Offer a mix of these parts, and return what its tasks and the broker counted."""
    whole = replace(mix_of(parts), load=100)
    with ListeningBroker() as broker:
        brokers = {BROKER_ID: ("127.0.0.1", broker.ports[BROKER_ID])}
        placed: Assignment = dict.fromkeys(range(PARTITIONS), (BROKER_ID,))
        topics = TopicSet.of_parts([TopicSet((each.part,), 1, placed) for each in parts], 1)
        made = plan(
            pattern=whole, tasks=slots, brokers=brokers, leaders=topics.leaders, climb=climb
        )
        stage = StagePlan(plans_of_parts(made, topics, share_slots(whole, slots)))
        plans = [stage.plan_of(task) for task in range(slots)]
        with ThreadPoolExecutor(slots) as pool:
            rows = list(pool.map(run_task, plans, ThreadsBarrier.of(slots)))
    assert [each.error for each in rows] == [None] * slots
    return merge(rows), broker
