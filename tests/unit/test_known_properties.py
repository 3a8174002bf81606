"""Names of broker properties, without a Kafka to ask."""

from __future__ import annotations

import pytest

from jobs.testbed.known_properties import unknown_names

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
