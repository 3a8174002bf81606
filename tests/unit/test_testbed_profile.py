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
    names = "calibrated cpu-quota default disk-bound planted-disk planted-link secured"
    assert list(names_in("testbed")) == names.split()
    for name in names_in("testbed"):
        profile = load_profile(name)
        assert profile.name == name and profile.description
        assert profile.kafka_version == DEFAULT_RELEASE
        # Ten partitions a broker, three replicas each, all on this one disk, and a second
        # segment each that waits for its deletion.
        replicas = 10 * profile.brokers * 3
        segment_bytes = int(profile.broker["log.segment.bytes"])
        per_replica = int(profile.broker["log.retention.bytes"]) + 2 * segment_bytes
        assert replicas * per_replica < profile.disk_limit_bytes


def test_a_profile_is_loaded_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "brokers: 2\nproduce_handler_ms: {1: 4, 2: 8}\n"
        "broker: {num.io.threads: 3, auto.create.topics.enable: true}\n"
    )
    profile = load_profile(str(path))
    assert (profile.name, profile.handler_ms) == ("mine", {1: 4.0, 2: 8.0})
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
    assert adapt(profile, overrides={"racks": "2"}).racks == 2
    several = adapt(profile, overrides={"kafka_versions": "1: 3.9.2, 3: 4.3.1"})
    assert several.kafka_versions == {1: "3.9.2", 3: "4.3.1"}
    options = ["-Xss512k", "-XX:+UseParallelGC"]
    for given in (" ".join(options), options):
        assert list(adapt(profile, overrides={"jvm_options": given}).jvm_options) == options


def test_a_handler_time_for_all_brokers_or_for_each() -> None:
    profile = load_profile("calibrated")
    assert "log.flush.interval.messages" not in profile.broker, "it waits for no disk"
    assert adapt(profile, brokers=2).handler_ms == {1: 60.0, 2: 60.0}
    each_ms = {1: 5.0, 2: 5.0, 3: 9.5}
    given: object
    for given, found in (
        ("2.5", dict.fromkeys((1, 2, 3), 2.5)),
        (2.5, dict.fromkeys((1, 2, 3), 2.5)),
        ("1: 5, 2: 5, 3: 9.5", each_ms),
        ("{3: 9.5, 1: 5, 2: 5}", each_ms),
        (each_ms, each_ms),
        (None, {}),
    ):
        assert adapt(profile, overrides={"produce_handler_ms": given}).handler_ms == found
    assert adapt(load_profile("secured"), overrides={"produce_handler_ms": "0"}).handler_ms


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
    kraft = adapt(profile, kafka_version="3.6.2", overrides={"metadata": "kraft"})
    assert kraft.keeps_metadata_in == "kraft", "which a login needs"
    name = "listener.name.sasl_plaintext.gssapi.sasl.jaas.config"
    assert adapt(profile, overrides={name: "x required;"}).broker[name] == "x required;"


def test_an_unknown_name_is_shown_with_the_nearest_one() -> None:
    """Without a Kafka to ask."""
    known = ("num.io.threads", "ssl.keystore.location", "log.segment.bytes")
    store = "ssl.keystore.location"
    listeners = (f"listener.name.client.{store}", f"listener.name.client.gssapi.{store}")
    assert not unknown_names([*known, *listeners, "super.users"], known)
    nearest = "num.io.thread (did you mean num.io.threads?)"
    assert unknown_names(["num.io.thread"], known) == [nearest]
    for name in ("listener.name.client.no.such", "listener.name.client.gssapi.no.such", "zzz.qqq"):
        assert unknown_names([name], known) == [name]
