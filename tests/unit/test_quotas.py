"""Quotas that may throttle the run's producers, and trials that could not show the throttling."""

from __future__ import annotations

from functools import partial

from jobs.cluster.permissions import Quota, is_throttling_unseen
from jobs.config import load_workload
from jobs.engine.network.options import ClientIds
from metrics.sources.beans import Role
from metrics.sources.source import NodeInfo

OURS = partial(ClientIds().may_be, prefix="redline-")
RATE = {"producer_byte_rate": 1e6}


def test_a_quota_may_throttle_producers_of_its_entity() -> None:
    cases: list[tuple[dict[str, str | None], dict[str, float], str | None, bool]] = [
        ({"client-id": None}, RATE, "us", True),
        ({"client-id": "redline-x-0"}, RATE, "us", True),
        ({"client-id": "app"}, RATE, "us", False),
        ({"user": None}, RATE, "us", True),
        ({"user": "us"}, {"request_percentage": 50.0}, "us", True),
        ({"user": "them"}, RATE, "us", False),
        ({"user": "them"}, RATE, None, True),  # the user of a certificate may be this one
        ({"user": "us", "client-id": "app"}, RATE, "us", False),
        ({"client-id": None}, {"consumer_byte_rate": 1e6}, "us", False),
        ({"ip": None}, {"connection_creation_rate": 1.0}, "us", False),
    ]
    for entity, values, user, holds in cases:
        assert Quota(entity, values).may_throttle(user, OURS) is holds, entity


def test_the_doctor_names_quotas_that_bound_other_requests_of_the_run() -> None:
    for key in ("consumer_byte_rate", "controller_mutation_rate"):
        assert Quota({"user": "us"}, {key: 1.0}).may_apply("us", OURS)
        assert not Quota({"user": "them"}, {key: 1.0}).may_apply("us", OURS)
    address = Quota({"ip": "10.0.4.17"}, {"connection_creation_rate": 50.0})
    assert address.may_apply("us", OURS)


def test_throttling_is_unseen_without_answers_and_metrics() -> None:
    lack = ("produce_throttle_ms_mean",)
    for acks, lacks, unseen in (("0", lack, True), ("0", (), False), ("all", lack, False)):
        nodes = [
            NodeInfo(1, "4.1", frozenset({Role.BROKER}), lacks=lacks),
            NodeInfo(100, "4.1", frozenset({Role.CONTROLLER}), lacks=lack),
        ]
        workload = load_workload("demo", [f"workload.producer.acks={acks}"])
        assert is_throttling_unseen(workload, nodes) is unseen
