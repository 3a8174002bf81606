"""Limits of real brokers on connections: the engine follows a limit on the rate, and reports one
on the number.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from jobs.cluster.connect import connect
from jobs.engine.network.connections import BrokerConnectError, open_connections
from jobs.engine.network.transport import Transport
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start

pytestmark = pytest.mark.long

RATE, MOST = 4, 80
"""max.connection.creation.rate, which allows a burst of 11 s, and max.connections.per.ip."""
FIRST = 60


@pytest.fixture
def limited() -> Iterator[Testbed]:
    limits = {"max.connection.creation.rate": RATE, "max.connections.per.ip": MOST}
    with start("disk-bound", brokers=1, overrides=limits, name="limits") as testbed:
        yield testbed


def test_a_limit_on_the_rate_is_followed_and_one_on_the_number_is_named(limited: Testbed) -> None:
    with connect(limited.bootstrap_servers) as admin:
        brokers = admin.describe_cluster().addresses
        (broker,) = brokers
        opened: dict[tuple[str, int], Transport] = {}
        try:
            began_s = time.monotonic()
            wanted = [(f"producer-{i}", broker) for i in range(FIRST)]
            opened.update(open_connections(wanted, brokers, {}, timeout_s=10.0))
            took_s = time.monotonic() - began_s
            assert len(opened) == FIRST
            assert took_s > (FIRST - 12 * RATE) / RATE, "the broker limited the rate"
            assert took_s < 2 * FIRST / RATE
            more = [(f"more-{i}", broker) for i in range(MOST - FIRST + 10)]
            with pytest.raises(BrokerConnectError) as refused:
                open_connections(more, brokers, {}, timeout_s=10.0)
        finally:
            for transport in opened.values():
                transport.close()
    text = str(refused.value)
    assert f"broker {broker} at " in text
    assert f"closes new connections: {MOST} are open from this host" in text
    assert "max.connections.per.ip" in text
