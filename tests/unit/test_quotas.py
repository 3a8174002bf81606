"""Quotas that may throttle the run's producers, and trials that could not show the throttling."""

from __future__ import annotations

from functools import partial

import pytest

from jobs.cluster.permissions import Quota, is_throttling_unseen
from jobs.config import load_workload
from jobs.engine.network.options import ClientIds
from metrics.sources.beans import Role
from metrics.sources.source import NodeInfo

OURS = partial(ClientIds().may_be, prefix="redline-")
RATE = {"producer_byte_rate": 1e6}


@pytest.mark.parametrize(
    ("entity", "values", "user", "holds"),
    [
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
    ],
)
def test_a_quota_may_throttle_producers_of_its_entity(
    entity: dict[str, str | None], values: dict[str, float], user: str | None, holds: bool
) -> None:
    assert Quota(entity, values).may_throttle(user, OURS) is holds


@pytest.mark.parametrize("key", ["consumer_byte_rate", "controller_mutation_rate"])
def test_the_doctor_names_quotas_that_bound_other_requests_of_the_run(key: str) -> None:
    of_run, of_others = ({"user": name} for name in ("us", "them"))
    assert Quota(of_run, {key: 1.0}).may_hold("us", OURS)
    assert not Quota(of_others, {key: 1.0}).may_hold("us", OURS)
    address = Quota({"ip": "10.0.4.17"}, {"connection_creation_rate": 50.0})
    assert address.may_hold("us", OURS)


@pytest.mark.parametrize(
    ("acks", "lacks", "unseen"),
    [
        ("0", ("produce_throttle_ms_mean",), True),
        ("0", (), False),
        ("1", ("produce_throttle_ms_mean",), False),
        ("all", ("produce_throttle_ms_mean",), False),
    ],
)
def test_throttling_is_unseen_without_answers_and_metrics(
    acks: str, lacks: tuple[str, ...], unseen: bool
) -> None:
    nodes = [
        NodeInfo(1, "4.1", frozenset({Role.BROKER}), lacks=lacks),
        NodeInfo(100, "4.1", frozenset({Role.CONTROLLER}), lacks=("produce_throttle_ms_mean",)),
    ]
    workload = load_workload("demo", [f"workload.producer.acks={acks}"])
    assert is_throttling_unseen(workload, nodes) is unseen
