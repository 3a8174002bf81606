"""A ready testbed, the properties that it knows, and orders: kills, restarts and commands."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path

import click.testing
import psutil
import pytest
from click.testing import CliRunner

from jobs.cluster.admin import KafkaAdmin
from jobs.compare import compare
from jobs.config.files import names_in
from jobs.setup.jars import kafka_jars
from jobs.setup.releases import DEFAULT_RELEASE
from jobs.testbed import commands
from jobs.testbed.channel import Inbox, MessageChannel, channel_pair
from jobs.testbed.cleanup import own_record
from jobs.testbed.detached import status
from jobs.testbed.handle import Testbed
from jobs.testbed.known_properties import property_names, require_known
from jobs.testbed.launcher import make_spec, start
from jobs.testbed.model import CONTROLLER_ID, HOST, State, Status, TestbedStateError
from jobs.testbed.nodes import registered_brokers
from jobs.testbed.places import accepts, free_ports
from jobs.testbed.profile import adapt, load_profile
from jobs.testbed.supervisor import Supervisor
from metrics.common.errors import ConfigError
from tests.support.exporters import Exporter
from tests.support.processes import becomes, controller_of, processes_with, supervisor_pid

pytestmark = pytest.mark.together


def is_silent(port: int) -> bool:
    """True if a broker accepts a connection and does not answer."""
    try:
        registered_brokers(port, timeout_s=0.3)
    except TimeoutError:
        return True
    return False


def test_a_broker_is_killed_and_restarted_and_a_stopped_testbed_leaves_nothing(
    tmp_path: Path,
) -> None:
    # The controller fences a killed broker after this time; the default is 9 s.
    quick = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}
    with start(brokers=2, root=tmp_path, overrides=quick) as testbed:
        first, second = testbed.brokers[1], testbed.brokers[2]
        before = testbed.pids[2]
        testbed.kill_broker(2)
        assert 2 not in testbed.pids
        assert not accepts(second.port, timeout_s=1)
        assert becomes(lambda: registered_brokers(first.port, timeout_s=5) == {1}, 20)
        testbed.check()

        testbed.restart_broker(2)
        assert testbed.pids[2] != before
        assert registered_brokers(first.port, timeout_s=5) == {1, 2}

        testbed.kill_broker(1, signal.SIGSTOP)
        # On a busy machine the threads stop one after the other, and may still answer once.
        assert becomes(lambda: is_silent(first.port))
        testbed.kill_broker(1, signal.SIGCONT)
        assert becomes(lambda: registered_brokers(first.port, timeout_s=5) == {1, 2}, 20)

        with pytest.raises(TestbedStateError, match="has no node 3; expected one of 1, 2"):
            testbed.kill_broker(3)
        nodes = [controller_of(testbed), *testbed.brokers.values()]
        ports = [port for node in nodes for port in (node.port, node.jmx_port)]
        pids = [*testbed.pids.values(), supervisor_pid(testbed)]
        assert len(processes_with(testbed.state.spec.id)) == len(pids) == 4
        assert all(accepts(port, timeout_s=5) for port in ports)
    with pytest.raises(TestbedStateError, match="is stopped"):
        testbed.kill_broker(1)
    testbed.stop()  # the second call does nothing
    assert processes_with(testbed.state.spec.id) == []
    assert not any(accepts(port, timeout_s=1) for port in ports)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".lock"]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_up_status_and_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.testbed.detached.default_root", lambda: tmp_path)
    monkeypatch.setattr("jobs.testbed.launcher.default_root", lambda: tmp_path)

    def run(*args: str) -> str:
        return CliRunner().invoke(commands.testbed, args, catch_exceptions=False).output

    try:
        output = run(
            *("up", "--brokers", "1", "--name", "kept"),
            *("--set", "metadata=combined", "--set", "num.network.threads=2"),
        )
        (state,) = [each.state for each in status(tmp_path) if each.is_alive]
        assert state.bootstrap_servers[0] in output
        assert registered_brokers(state.brokers[0].port, timeout_s=5) == {1}
        properties = (Path(state.brokers[0].directory) / "server.properties").read_text()
        assert "num.network.threads=2\n" in properties
        assert "ready for" in run("status") and state.bootstrap_servers[0] in run("status")
        with pytest.raises(TestbedStateError, match='"kept" runs already'):
            run("up", "--brokers", "1", "--name", "kept")
        assert 'no testbed "other" runs' in run("down", "--name", "other")
        assert len(processes_with(state.spec.id)) == 2
    finally:
        output = run("down", "--name", "kept")
    assert output == (
        "stopped testbed kept (1 broker, Kafka 4.1.2, each broker also a controller), "
        "a small disk-bound cluster\n"
    )
    assert processes_with(state.spec.id) == []
    assert run("status") == "no testbed runs; start one with `redline testbed up`\n"


@pytest.mark.long
def test_another_process_that_takes_a_port_first_only_costs_another_attempt(tmp_path: Path) -> None:
    profile = adapt(load_profile("disk-bound"), brokers=1)
    spec = make_spec(profile, "unlucky", kafka_jars(profile.kafka_version))
    state = State(spec, Status.STARTING, created_s=time.time(), owner=own_record())
    folder = tmp_path / spec.id
    folder.mkdir()
    orders, inherited = channel_pair()
    attempts: list[list[int]] = []

    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()

        def allocate(count: int) -> list[int]:
            ports = free_ports(count)
            if not attempts:
                ports[-1] = other.getsockname()[1]  # JMX of the broker
            attempts.append(ports)
            return ports

        def stop_when_ready() -> None:
            while True:
                message = orders.receive(timeout_s=100)
                if message is None or message["event"] != "stopped":
                    messages.append(message)
                    orders.send({"order": "stop", "is_hasty": False, "reason": ""})
                else:
                    return

        messages: list[object] = []
        owner = threading.Thread(target=stop_when_ready)
        owner.start()
        channel = MessageChannel(inherited)
        inbox = Inbox(channel)
        try:
            Supervisor(folder, state, channel, inbox, allocate=allocate).run()
        finally:
            inbox.close()
            orders.close()
            owner.join()
            channel.close()
    assert messages == [{"event": "ready"}]
    assert len(attempts) == 2
    assert processes_with(spec.id) == []


def test_a_ready_testbed_has_its_documented_state(
    kafka_testbed: Testbed, exporters: dict[int, Exporter], admin: KafkaAdmin
) -> None:
    assert kafka_testbed.broker_ids == (1, 2, 3)
    assert set(kafka_testbed.jmx_endpoints) == {1, 2, 3}
    assert set(kafka_testbed.pids) == {CONTROLLER_ID, 1, 2, 3}
    cluster = admin.client.describe_cluster()
    at = {f"{each['host']}:{each['port']}" for each in cluster["brokers"]}
    assert at == set(kafka_testbed.bootstrap_servers)
    for broker in kafka_testbed.brokers.values():
        assert registered_brokers(broker.port, timeout_s=5) == {1, 2, 3}
        assert kafka_testbed.jmx_endpoints[broker.node_id] == f"{HOST}:{broker.jmx_port}"
        assert accepts(broker.jmx_port, timeout_s=5)
        log = (Path(broker.directory) / "server.log").read_text()
        assert f"Kafka version: {kafka_testbed.state.spec.kafka_version}" in log
    for node in (controller_of(kafka_testbed), *kafka_testbed.brokers.values()):
        listening = {
            connection.laddr.port: connection.laddr.ip
            for connection in psutil.Process(kafka_testbed.pids[node.node_id]).net_connections()
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening.pop(node.port) == listening.pop(node.jmx_port) == HOST, node.node_id
        if node.node_id in exporters:
            assert listening.pop(exporters[node.node_id].port) == HOST
        # The JVM's attach port: the JVM refuses connections from other machines.
        assert len(listening) == 1, node.node_id


@pytest.mark.parametrize("name", names_in("testbed"))
def test_the_profiles_have_only_properties_of_kafka(name: str) -> None:
    profile = load_profile(name)
    require_known({**profile.broker, **profile.controller}, profile.kafka_version)


@pytest.mark.parametrize(
    "version",
    [
        DEFAULT_RELEASE,
        pytest.param("3.9.2", marks=pytest.mark.long),
        pytest.param("4.3.1", marks=pytest.mark.long),
    ],
)
def test_the_properties_of_a_version_are_known(version: str) -> None:
    names = property_names(version)
    assert {"num.io.threads", "log.dirs", "ssl.keystore.location"} <= set(names)
    assert len(names) > 200
    require_known(load_profile("disk-bound").broker, version)


def test_a_mistyped_property_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match=r"num\.io\.thread \(did you mean num\.io\.threads\?\)"):
        start("default", brokers=1, overrides={"num.io.thread": 2})
    options = ["--a", "num.io.thread=2", "--b", "num.io.threads=1", "--dry-run"]
    done = click.testing.CliRunner().invoke(compare, options)
    assert isinstance(done.exception, ConfigError), done.output
    assert "num.io.threads?" in str(done.exception)
