"""Real brokers for tests; a plugin of tests/conftest.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.setup.jars import kafka_jars
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import make_spec, start
from jobs.testbed.profile import load_profile


@pytest.fixture(scope="session")
def kafka_for_all() -> Iterator[Testbed]:
    """Three brokers and a controller for the whole run, of the disk-bound profile."""
    profile = load_profile("disk-bound")
    spec = make_spec(profile, "tests", kafka_jars(profile.kafka_version))
    if spec.class_archive is not None and not Path(spec.class_archive).exists():
        # The first testbed of a fresh checkout leaves what halves the start of the others.
        start(profile, brokers=1, name="tests").stop()
    with start(profile, brokers=3, name="tests") as testbed:
        yield testbed


@pytest.fixture
def kafka_testbed(kafka_for_all: Testbed) -> Testbed:
    """The brokers of the run, checked to be whole. Share them: one topic per test, and
    nothing that stops a broker.
    """
    kafka_for_all.check()
    return kafka_for_all
