"""Requests to a cluster's administration are made again where no broker can have acted on them."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from kafka import errors as kafka_errors
from kafka.net.inet import KafkaNetSocket
from kafka.net.selector import NetworkSelector

from jobs.cluster.admin import AdminError, KafkaAdmin


def client() -> Any:
    """The part of kafka-python's client that a failed request uses."""
    cluster = SimpleNamespace(refresh_metadata=Mock())
    return SimpleNamespace(
        _controller_id=2, _manager=SimpleNamespace(run=lambda call: call(), cluster=cluster)
    )


def looks(made: Any) -> int:
    """How often the client's knowledge of the cluster was refreshed."""
    count: int = made._manager.cluster.refresh_metadata.call_count
    return count


def refused() -> Exception:
    """kafka-python's error for a port without a listener."""
    net = NetworkSelector()
    with socket.socket() as held, socket.socket() as tried:
        held.bind(("127.0.0.1", 0))
        tried.setblocking(False)
        with pytest.raises(kafka_errors.KafkaConnectionError) as caught:
            net.run(KafkaNetSocket().sock_connect, net, tried, held.getsockname())
    net.close()
    error: Exception = caught.value
    return error


def test_a_request_goes_to_another_broker_only_where_the_lost_one_did_not_get_it() -> None:
    for error in (
        refused(), kafka_errors.NodeNotReadyError(2), kafka_errors.UnknownBrokerIdError(2)
    ):  # fmt: skip
        made = client()
        request = Mock(side_effect=[error, "made"])
        assert KafkaAdmin(made, 1.0).ask("create it", request) == "made"
        assert (looks(made), made._controller_id) == (1, None)
    for error in (
        kafka_errors.KafkaConnectionError("socket disconnected"), kafka_errors.KafkaError()
    ):  # fmt: skip
        made = client()
        with pytest.raises(AdminError, match="could not create it"):
            KafkaAdmin(made, 1.0).ask("create it", Mock(side_effect=[error, "made"]))
        assert looks(made) == 0
    with pytest.raises(AdminError, match="check that the brokers run and can be reached"):
        KafkaAdmin(client(), 1.0).ask("create it", Mock(side_effect=[refused(), refused()]))


def test_a_request_to_a_coordinator_that_loads_its_groups_is_repeated() -> None:
    loading, made = kafka_errors.CoordinatorLoadInProgressError(), client()
    request = Mock(side_effect=[loading, loading, ["g"]])
    assert KafkaAdmin(made, 30.0).ask("list groups", request) == ["g"]
    assert looks(made) == 0
    with pytest.raises(AdminError, match="could not list groups"):
        KafkaAdmin(made, -1.0).ask("list groups", Mock(side_effect=loading))


def test_a_quota_on_changes_of_topics_is_waited_for_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answered(code: int, throttle_ms: int) -> SimpleNamespace:
        result = SimpleNamespace(error_code=code, error_message=None)
        return SimpleNamespace(throttle_time_ms=throttle_ms, responses=[result])

    admin, slept, said = KafkaAdmin(client(), 1.0), list[float](), list[str]()
    answers: list[SimpleNamespace] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(admin, "_send_to_controller", lambda *_: answers.pop(0))
    admin.on_wait = said.append
    answers = [answered(89, 1_500), answered(89, 0), answered(0, 0)]
    admin.delete_topic("orders")
    assert (slept, answers) == ([1.5, 0.05], [])
    assert said[0].startswith("waiting 1.5 s to delete the topic orders, because the cluster has")
    answers = [answered(89, 400_000)]
    with pytest.raises(AdminError, match="could not delete the topic orders"):
        admin.delete_topic("orders")
