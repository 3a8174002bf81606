"""The lag of consumer groups on real brokers, and what a look at it costs."""

from __future__ import annotations

import logging
import uuid
from contextlib import ExitStack
from statistics import median

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from jobs.cluster.connect import connect
from jobs.cluster.health import GROUPS_MAX, GroupLags
from jobs.testbed.handle import Testbed
from tests.support.processes import becomes

log = logging.getLogger(__name__)

pytestmark = pytest.mark.together

GROUPS, PARTITIONS, RECORDS = GROUPS_MAX, 12, 60
LOOKS = 10


def test_the_lag_of_groups_of_others_is_known_by_a_few_requests(kafka_testbed: Testbed) -> None:
    name = f"orders-{uuid.uuid4().hex[:6]}"
    servers = list(kafka_testbed.bootstrap_servers)
    with connect(servers) as admin, ExitStack() as stack:
        stack.callback(admin.delete_topic, name)
        admin.create_topic(name, {n: [1 + n % 2] for n in range(PARTITIONS)}, {})
        producer = KafkaProducer(bootstrap_servers=servers, acks="all")
        stack.callback(producer.close, 5)
        for number in range(RECORDS):
            producer.send(name, b"x", partition=number % PARTITIONS).get(30)
        groups = [f"{name}-{number:02}" for number in range(GROUPS)]
        consumers = [KafkaConsumer(name, bootstrap_servers=servers, group_id=each,
                                   enable_auto_commit=False) for each in groups]  # fmt: skip
        for each in consumers:
            stack.callback(each.close)

        def are_stable() -> bool:
            for each in consumers:
                each.poll(timeout_ms=100, max_records=1)
            states = admin.groups()
            has_joined = all(each.assignment() for each in consumers)
            return has_joined and all(states.get(each) == "Stable" for each in groups)

        assert becomes(are_stable, 200.0), admin.groups()
        for number, each in enumerate(consumers):
            at = OffsetAndMetadata(RECORDS // PARTITIONS - (1 if number == 3 else 0), "", -1)
            each.commit({TopicPartition(name, n): at for n in range(PARTITIONS)})
        lags = GroupLags(admin, lambda group: group not in groups)
        assert set(lags.choose()) == set(groups) and lags.hidden == ()
        before = lags.read()
        assert before[groups[3]].lag == PARTITIONS and before[groups[0]].lag == 0
        for number in range(PARTITIONS * 2):
            producer.send(name, b"x", partition=number % PARTITIONS).get(30)
        manager, sent = admin.client._manager, list[str]()
        send = manager.send

        def counted(request: object, *args: object, **kwargs: object) -> object:
            sent.append(type(request).__name__)
            return send(request, *args, **kwargs)

        manager.send = counted
        took_s = []
        for _ in range(LOOKS):
            now = lags.read()
            took_s.append(lags.took_s)
        assert {now[each].lag - before[each].lag for each in groups} == {PARTITIONS * 2}
        log.warning("%d groups: %.1f ms, %.1f requests a look", GROUPS, 1e3 * median(took_s),
                    len(sent) / LOOKS)  # fmt: skip
        brokers = len(kafka_testbed.broker_ids)
        assert len(sent) <= LOOKS * (2 * brokers + 1), sent
