"""A cluster that cannot be reached: one sentence, soon, and no thread left."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from jobs.cluster.connect import connect, probe
from metrics.common.errors import ConfigError, TryLaterError
from tests.support.fake_cluster import FakeCluster, Habits
from tests.support.processes import PATIENCE_S


@pytest.fixture
def refusing() -> Iterator[str]:
    """An address without a listener, reserved while the test runs."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_an_address_without_a_listener_is_refused_at_once(refusing: str, silent: str) -> None:
    nowhere = "no-such-host.invalid:9092"
    troubles = probe([refusing, silent, nowhere], timeout_s=PATIENCE_S)
    assert set(troubles) == {refusing, nowhere}
    assert "refused" in troubles[refusing] and "does not resolve" in troubles[nowhere]
    with pytest.raises(
        TryLaterError, match=f"{refusing}.*start a broker, or correct the addresses"
    ):
        connect([refusing], timeout_s=600.0)  # longer than a test may take
    with pytest.raises(ConfigError, match="does not resolve"):
        connect([nowhere], timeout_s=10.0)
    with pytest.raises(TryLaterError, match="accepts no connection"):
        connect([nowhere, refusing], timeout_s=10.0)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_SSL"])
def test_a_server_that_is_no_broker_is_refused_in_time_and_leaves_no_thread(
    protocol: str, silent: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    threads = threading.active_count()
    options = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "hunter2",
    }
    with pytest.raises(ConfigError) as caught:
        connect([silent], options if protocol == "SASL_SSL" else {}, timeout_s=1.0)
    message = str(caught.value)
    silence = f"{silent}: the broker accepts connections, but does not answer over {protocol}"
    assert silence in message
    assert "check the port and cluster security.protocol" in message
    assert "hunter2" not in message
    assert threading.active_count() == threads
    assert capfd.readouterr().err == "", "kafka-python's own lines"
    if protocol == "PLAINTEXT":
        assert any(record.name.startswith("kafka.") for record in caplog.records), "still loggable"


def test_another_cluster_than_the_pinned_one_gets_no_further_connection() -> None:
    with FakeCluster(Habits(metadata_id="fake")) as cluster:
        first, second = cluster.addresses
        with connect([first], cluster_id="fake") as admin:
            assert admin.describe_cluster().cluster_id == "fake"
        assert 1001 in cluster.connected, "then all brokers are reached"
        cluster.connected.clear()
        with pytest.raises(ConfigError) as caught:
            connect([first, second], cluster="orders", cluster_id="mine")
        assert "cluster orders" in str(caught.value)
        assert "has the id fake" in str(caught.value)
        assert "cluster_id: mine" in str(caught.value)
        # One by TCP to each address of the file, and then the first address alone: an attempt of
        # our own and the client's first connection.
        assert cluster.connected.count(1001) == 1
        assert cluster.connected.count(0) == 3
