"""Roles, and the broker's part of a shared meter, by recorded answers of real releases."""

from __future__ import annotations

import pytest

from metrics.common.errors import ConfigError
from metrics.sources.bean_poller import with_lacks
from metrics.sources.beans import (
    CONTROLLER_REQUESTS,
    UNKNOWN_SHARE,
    Role,
    controller_bound_ns,
    controller_request,
    controller_share,
    with_own_idle,
)
from metrics.sources.rules import roles_of, with_handlers
from metrics.sources.shortcomings import shortcomings
from metrics.windows.broker import BrokerWindow, broker_window, find_contradiction
from tests.support.bean_answers import answers, node_of, readings_in, recorded_samples
from tests.support.evidence import sample

BROKER = frozenset({Role.BROKER})
ZOOKEEPER = ["2.8.2-zookeeper-1", "3.9.2-zookeeper-1"]
SHARED = ["3.9.2-combined-1", "4.1.2-combined-1"]
ACTIVE = "kafka.controller:type=KafkaController,name=ActiveControllerCount"


def window_of(name: str) -> BrokerWindow:
    samples = recorded_samples(name)
    start_s, end_s = (each.at_s for each in samples)
    return broker_window(samples, 1, start_s, end_s, end_s - start_s)


@pytest.mark.parametrize("name", ZOOKEEPER)
def test_a_broker_with_zookeeper_is_a_broker_only_also_as_the_active_controller(name: str) -> None:
    answer, _ = answers(name)
    answer[ACTIVE]["Value"] = 1
    node = node_of(answer)
    assert (node.roles, node.has_quorum) == (BROKER, False)
    found = with_lacks(node, readings_in(answer))
    assert {"fenced_brokers", "controller_epoch"}.isdisjoint(found.lacks)
    assert any("use ZooKeeper" in each for each in shortcomings({1: found}, 1.0))
    window = window_of(name)
    assert window.handler_idle == pytest.approx(1.0, abs=0.05), "the meter is the broker's own"
    assert (window.handler_idle_error, window.contradiction) == (None, None)
    assert window.network_idle == pytest.approx(1.0, abs=0.15), "2.8 has another name for it"
    for attributes in answer.values():
        if "io-waittime-total" in attributes and "io-wait-time-ns-total" in attributes:
            attributes["io-waittime-total"] = -1.0
    whole = readings_in(answer)
    waits = [value for reading, value in whole.items() if reading.startswith("network_wait_ns")]
    assert min(waits) > 0, "of two names, the newer one is read"
    values = {n: v for n, v in whole.items() if n != "handler_idle_ns"}
    with pytest.raises(ConfigError, match=r"broker 1, Kafka .*client_only: true"):
        with_lacks(node, values)


@pytest.mark.parametrize("name", SHARED)
def test_a_combined_process_has_both_roles_and_an_idle_time_of_about_1_at_rest(name: str) -> None:
    answer, _ = answers(name)
    node, whole = node_of(answer), readings_in(answer)
    assert (node.roles, node.has_quorum) == (frozenset(Role), True)
    window = window_of(name)
    assert window.handler_idle == pytest.approx(1.0, abs=0.05)
    assert 0.0 < (window.handler_idle_error or 0.0) < 0.03
    assert window.contradiction is None
    found = with_lacks(node, whole)
    assert {"fenced_brokers", "log_flush_ms_mean"}.isdisjoint(found.lacks)
    assert found.controller_share is not None
    (sentence,) = (each for each in shortcomings({1: found}, 1.0) if "share one metric" in each)
    assert f"at most {found.controller_share:.1%}" in sentence and "node 1" in sentence
    assert f"±{found.controller_share / 2:.3f}" in sentence
    lacking = with_lacks(node, {k: v for k, v in whole.items() if k != "fenced_brokers"})
    assert "fenced_brokers" in lacking.lacks
    assert any("fenced brokers" in each for each in shortcomings({1: lacking}, 1.0))


def busy_controller(listener: str = "CONTROLLER") -> dict[str, float]:
    heartbeat = controller_request("BrokerHeartbeat")
    others = {f"{controller_request(each)}_count": 0.0 for each in CONTROLLER_REQUESTS}
    return {
        **others,
        f"{heartbeat}_count": 100.0,
        f"{heartbeat}_mean": 2.0,
        f"network_requests:{listener}/0": 90.0,
        f"network_requests:{listener}/1": 60.0,
        "network_requests:PLAINTEXT/0": 9e9,
        "fetch_follower_total_ms_count": 1_000.0,
        "uptime_ms": 100_000.0,
    }


def test_the_controllers_bound_has_its_requests_their_rounding_and_the_fetches() -> None:
    # 100 heartbeats of 2 ms and of 0.5 ms of rounding, and 50 other requests of 1 ms.
    assert controller_bound_ns(busy_controller(), 1e5) == 300e6
    assert controller_bound_ns(busy_controller("CONTROLPLANE-9090"), 1e5) == 300e6
    unknown = controller_bound_ns(busy_controller("INTERNAL"), 1e5)
    assert unknown == 1_250e6, "all fetches of followers count"
    assert controller_bound_ns({}, 1e5) == UNKNOWN_SHARE * 1e11


def test_the_brokers_idle_time_is_the_middle_of_its_range() -> None:
    values = {**busy_controller(), "shared_handler_idle_ns": 150e9}
    found = with_own_idle(values, 0.0)
    assert found["handler_idle_ns"] == 50e9 + 150e6
    assert found["controller_handler_ns"] == 300e6
    assert with_own_idle({"handler_idle_ns": 1.0}, 0.0) == {"handler_idle_ns": 1.0}
    del values["uptime_ms"]  # the time of the sample stands in, and the part is assumed
    found = with_own_idle(values, 100.0)
    assert found["handler_idle_ns"] == 50e9 + 150e6
    assert controller_share(found) == UNKNOWN_SHARE


def test_a_derived_idle_time_that_falls_is_no_contradiction_but_a_falling_meter_is() -> None:
    def taken(at: float, shared: float, own: float) -> dict[str, float]:
        return {
            "uptime_ms": 1e6 + at * 1e3,
            "shared_handler_idle_ns": shared,
            "handler_idle_ns": own,
            "controller_handler_ns": 1.0,
        }

    falls = [sample(at, taken(at, 5e9 + at, 9.0 - at)) for at in (0, 1)]
    assert find_contradiction(falls) is None
    broken = [sample(at, taken(at, 5e9 - at, 9.0)) for at in (0, 1)]
    assert "shared_handler_idle_ns fell" in (find_contradiction(broken) or "")


def test_roles_are_read_from_exporters_by_the_same_metrics() -> None:
    for shown, roles in (
        ("leader_partitions", BROKER),
        ("leader_partitions active_controller", BROKER),  # ZooKeeper
        ("isr_shrinks active_controller", BROKER),
        ("leader_partitions active_controller controller_epoch", frozenset(Role)),
        ("active_controller controller_epoch", frozenset({Role.CONTROLLER})),
        ("active_controller", frozenset({Role.CONTROLLER})),
        ("", BROKER),
    ):
        assert roles_of(dict.fromkeys(shown.split(), 1.0)) == roles, shown


def test_exporters_of_combined_processes_show_the_shared_meter() -> None:
    values = {**busy_controller(), "handler_idle_ns": 150e9, "active_controller": 1.0}
    shared = with_handlers(values, 100.0, is_shared=True)
    assert (shared["handler_idle_ns"], shared["shared_handler_idle_ns"]) == (50.15e9, 150e9)
    own = with_handlers({**values, "broker_handler_idle_ns": 7.0}, 100.0, is_shared=True)
    assert own["handler_idle_ns"] == 7.0
    assert "shared_handler_idle_ns" not in own
    assert with_handlers(values, 100.0, is_shared=False)["handler_idle_ns"] == 150e9
