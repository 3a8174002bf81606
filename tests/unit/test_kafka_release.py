"""The places in which each release keeps its metadata."""

from __future__ import annotations

import pytest

from jobs.setup.kafka_release import RELEASE, Metadata, metadata_of
from metrics.common.errors import ConfigError


@pytest.mark.parametrize("release", ["2.8.0", "2.8.2", "3.0.2", "3.9.2", "4.1.2", "10.0.1"])
def test_releases_from_2_8_on_are_taken(release: str) -> None:
    assert RELEASE.accepts(release)


@pytest.mark.parametrize("release", ["2.7.2", "2.10", "1.1.1", "4.1", "4.1.2-rc1", "latest"])
def test_other_texts_are_no_release(release: str) -> None:
    assert not RELEASE.accepts(release)


@pytest.mark.parametrize(
    ("release", "chosen", "found"),
    [
        ("2.8.2", None, "zookeeper"),
        ("3.8.1", None, "zookeeper"),
        ("3.9.2", None, "kraft"),
        ("4.1.2", None, "kraft"),
        ("3.9.2", "zookeeper", "zookeeper"),
        ("3.3.2", "kraft", "kraft"),
        ("4.3.1", "combined", "combined"),
    ],
)
def test_each_release_has_a_default_and_a_choice(
    release: str, chosen: Metadata | None, found: Metadata
) -> None:
    assert metadata_of(release, chosen) == found


@pytest.mark.parametrize(
    ("release", "chosen", "expected"),
    [("4.0.1", "zookeeper", "kraft or combined"), ("3.2.3", "kraft", "zookeeper before 3.3")],
)
def test_a_place_that_a_release_does_not_support_is_refused(
    release: str, chosen: Metadata, expected: str
) -> None:
    with pytest.raises(ConfigError) as error:
        metadata_of(release, chosen)
    assert release in str(error.value) and expected in str(error.value)
