"""Profiles of conf/testbed, and the names of broker properties."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.config.files import names_in
from jobs.setup.releases import DEFAULT_RELEASE
from jobs.testbed.known_properties import unknown_names
from jobs.testbed.profile import adapt, load_profile
from metrics.common.errors import ConfigError


def test_all_profiles_load_and_bound_the_disk() -> None:
    assert names_in("testbed") == (
        "calibrated",
        "cpu-quota",
        "default",
        "disk-bound",
        "planted-disk",
        "planted-link",
        "secured",
    )
    for name in names_in("testbed"):
        profile = load_profile(name)
        assert profile.name == name and profile.description
        assert profile.kafka_version == DEFAULT_RELEASE
        # Ten partitions a broker, three replicas each, all on this one disk, and a second
        # segment each that waits for its deletion.
        replicas = 10 * profile.brokers * 3
        per_replica = int(profile.broker["log.retention.bytes"]) + 2 * int(
            profile.broker["log.segment.bytes"]
        )
        assert replicas * per_replica < profile.disk_limit_bytes


def test_handlers_of_the_default_profile_are_used_up_before_two_cores() -> None:
    broker = load_profile("disk-bound").broker
    assert broker["num.io.threads"] == "1"
    assert broker["log.flush.interval.messages"] == "1"
    assert broker["replica.lag.time.max.ms"] == "2000"
    assert broker["auto.create.topics.enable"] == "false"
    assert "num.io.threads" not in load_profile("default").broker


def test_a_profile_is_loaded_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("brokers: 1\nbroker: {num.io.threads: 3, auto.create.topics.enable: true}\n")
    profile = load_profile(str(path))
    assert profile.name == "mine"
    assert dict(profile.broker) == {"num.io.threads": "3", "auto.create.topics.enable": "true"}


def test_adapt_replaces_only_the_given_keys() -> None:
    profile = load_profile("disk-bound")
    overrides = {"num.io.threads": 4, "compression.type": "lz4", "heap_mb": "256"}
    other = adapt(profile, brokers=1, kafka_version="3.9.2", overrides=overrides)
    assert (other.brokers, other.kafka_version, other.heap_mb) == (1, "3.9.2", 256)
    changed = {key for key in other.broker if other.broker[key] != profile.broker.get(key)}
    assert changed == {"num.io.threads", "compression.type"}
    assert other.disk_limit_bytes == profile.disk_limit_bytes
    assert adapt(profile) == profile


def test_jvm_options_as_a_text_or_a_list() -> None:
    profile = load_profile("disk-bound")
    assert profile.jvm_options == ("-XX:TieredStopAtLevel=1",)
    assert load_profile("default").jvm_options == ()
    for given in ("-Xss512k -XX:+UseParallelGC", ["-Xss512k", "-XX:+UseParallelGC"]):
        other = adapt(profile, overrides={"jvm_options": given})
        assert other.jvm_options == ("-Xss512k", "-XX:+UseParallelGC")


def test_the_calibrated_profile_states_a_time_and_waits_for_no_disk() -> None:
    profile = load_profile("calibrated")
    assert profile.handler_ms == {1: 60.0, 2: 60.0, 3: 60.0}
    assert profile.broker["num.io.threads"] == "4"
    assert "log.flush.interval.messages" not in profile.broker
    assert load_profile("disk-bound").handler_ms == {}


def test_a_handler_time_for_all_brokers_or_for_each() -> None:
    profile = load_profile("calibrated")
    assert adapt(profile, brokers=2).handler_ms == {1: 60.0, 2: 60.0}
    everywhere: list[object] = ["2.5", 2.5]
    for given in everywhere:
        assert adapt(profile, overrides={"produce_handler_ms": given}).handler_ms[3] == 2.5
    on_each: list[object] = ["1: 5, 2: 5, 3: 9.5", "{3: 9.5, 1: 5, 2: 5}", {1: 5, 2: 5, 3: 9.5}]
    for given in on_each:
        other = adapt(profile, overrides={"produce_handler_ms": given})
        assert other.handler_ms == {1: 5.0, 2: 5.0, 3: 9.5}
    assert adapt(profile, overrides={"produce_handler_ms": None}).handler_ms == {}
    assert adapt(load_profile("secured"), overrides={"produce_handler_ms": "0"}).handler_ms


def test_handler_times_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("brokers: 2\nproduce_handler_ms: {1: 4, 2: 8}\n")
    assert load_profile(str(path)).handler_ms == {1: 4.0, 2: 8.0}


def test_releases_of_single_brokers_are_of_brokers_that_exist() -> None:
    profile = adapt(load_profile("disk-bound"), overrides={"kafka_versions": "1: 3.9.2, 3: 4.3.1"})
    assert profile.kafka_versions == {1: "3.9.2", 3: "4.3.1"}


def test_racks_fit_the_brokers() -> None:
    profile = load_profile("disk-bound")
    assert profile.racks == 0
    assert adapt(profile, overrides={"racks": "2"}).racks == 2


def test_a_login_needs_kraft() -> None:
    kraft = adapt(load_profile("secured"), kafka_version="3.6.2", overrides={"metadata": "kraft"})
    assert kraft.keeps_metadata_in == "kraft"


def test_an_unknown_profile_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the nearest is disk-bound; expected one of calib"):
        load_profile("disk-bond")
    with pytest.raises(ConfigError, match="does not exist"):
        load_profile(str(tmp_path / "absent.yaml"))


def test_security_is_a_text_or_a_list_and_plaintext_is_none() -> None:
    profile = load_profile("secured")
    assert (profile.security, profile.jmx_secured) == (("SASL_SSL",), True)
    other = adapt(profile, overrides={"security": "SSL, SASL_PLAINTEXT", "jmx_secured": "false"})
    assert (other.security, other.jmx_secured) == (("SSL", "SASL_PLAINTEXT"), False)
    assert adapt(profile, overrides={"security": "PLAINTEXT"}).security == ()
    plain = load_profile("disk-bound")
    assert plain.security == () and plain.broker == profile.broker


def test_a_property_of_one_listener_is_taken_by_its_name() -> None:
    name = "listener.name.sasl_plaintext.gssapi.sasl.jaas.config"
    profile = adapt(load_profile("secured"), overrides={name: "x required;"})
    assert profile.broker[name] == "x required;"


# --- names of broker properties, without a Kafka to ask ----------------------------


KNOWN = ("num.io.threads", "ssl.keystore.location", "log.segment.bytes")


@pytest.mark.parametrize(
    "name",
    [
        *KNOWN,
        "listener.name.client.ssl.keystore.location",
        "listener.name.client.gssapi.ssl.keystore.location",
        "super.users",
    ],
)
def test_properties_that_kafka_reads_are_known(name: str) -> None:
    assert not unknown_names([name], KNOWN)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("num.io.thread", "num.io.thread (did you mean num.io.threads?)"),
        ("listener.name.client.no.such", "listener.name.client.no.such"),
        ("listener.name.client.gssapi.no.such", "listener.name.client.gssapi.no.such"),
        ("zzz.qqq", "zzz.qqq"),
    ],
)
def test_an_unknown_name_is_shown_with_the_nearest_one(name: str, shown: str) -> None:
    assert unknown_names([name], KNOWN) == [shown]
