"""The broker properties that a Kafka version itself defines."""

from __future__ import annotations

import click.testing
import pytest

from jobs.compare import compare
from jobs.setup.releases import DEFAULT_RELEASE
from jobs.testbed.known_properties import property_names, require_known
from jobs.testbed.launcher import start
from jobs.testbed.profile import load_profile, profile_names
from metrics.common.errors import ConfigError

pytestmark = pytest.mark.together


@pytest.mark.parametrize("name", profile_names())
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
