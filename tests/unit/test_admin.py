"""Requests to a cluster's administration are made again where no broker can have acted on them."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from kafka import errors as kafka_errors
from kafka.net.inet import KafkaNetSocket
from kafka.net.selector import NetworkSelector

from jobs.cluster.admin import AdminError, KafkaAdmin


class Client:
    """The part of kafka-python's client that a failed request uses."""

    def __init__(self) -> None:
        self._controller_id: int | None = 2
        self.looked = 0
        self._manager = SimpleNamespace(
            run=lambda call: call(), cluster=SimpleNamespace(refresh_metadata=self._look)
        )

    def _look(self) -> None:
        self.looked += 1


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


@pytest.mark.parametrize(
    "error", [refused(), kafka_errors.NodeNotReadyError(2), kafka_errors.UnknownBrokerIdError(2)]
)
def test_a_request_that_a_lost_broker_did_not_get_goes_to_another_one(error: Exception) -> None:
    client = Client()
    admin = KafkaAdmin(client, 1.0)
    assert admin.ask("create it", Mock(side_effect=[error, "made"])) == "made"
    assert (client.looked, client._controller_id) == (1, None)


@pytest.mark.parametrize(
    "error", [kafka_errors.KafkaConnectionError("socket disconnected"), kafka_errors.KafkaError()]
)
def test_a_request_that_a_broker_may_have_executed_is_not_repeated(error: Exception) -> None:
    client = Client()
    with pytest.raises(AdminError, match="could not create it"):
        KafkaAdmin(client, 1.0).ask("create it", Mock(side_effect=[error, "made"]))
    assert client.looked == 0


def test_a_broker_that_stays_offline_is_an_error_with_the_remedy() -> None:
    with pytest.raises(AdminError, match="check that the brokers run and can be reached"):
        KafkaAdmin(Client(), 1.0).ask("create it", Mock(side_effect=[refused(), refused()]))


def test_a_request_to_a_coordinator_that_loads_its_groups_is_repeated() -> None:
    loading = kafka_errors.CoordinatorLoadInProgressError()
    client = Client()
    admin = KafkaAdmin(client, 30.0)
    assert admin.ask("list groups", Mock(side_effect=[loading, loading, ["g"]])) == ["g"]
    assert client.looked == 0
    late = Mock(side_effect=loading)
    with pytest.raises(AdminError, match="could not list groups"):
        KafkaAdmin(client, -1.0).ask("list groups", late)


def test_a_quota_on_changes_of_topics_is_waited_for_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answered(code: int, throttle_ms: int) -> SimpleNamespace:
        result = SimpleNamespace(error_code=code, error_message=None)
        return SimpleNamespace(throttle_time_ms=throttle_ms, responses=[result])

    admin, slept, said = KafkaAdmin(Client(), 1.0), list[float](), list[str]()
    answers: list[SimpleNamespace] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(admin, "_send_to_controller", lambda *_: answers.pop(0))
    admin.on_wait = said.append
    answers = [answered(89, 1_500), answered(89, 0), answered(0, 0)]
    admin.delete_topic("orders")
    assert (slept, answers) == ([1.5, 0.05], [])
    assert said[0].startswith("waiting 1.5 s to delete the topic orders, as the cluster has")
    answers = [answered(89, 400_000)]
    with pytest.raises(AdminError, match="could not delete the topic orders"):
        admin.delete_topic("orders")
