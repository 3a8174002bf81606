"""Every producer client on real brokers has the same account, and acknowledged records arrive."""

from __future__ import annotations

import pytest

from jobs.testbed.handle import Testbed
from metrics.trial.client import ClientWindow
from tests.support.engine_bench import Bench, benches_at_once
from tests.support.processes import becomes

pytestmark = pytest.mark.together

LIBRARIES = ("kafka-python", "librdkafka")
Written = tuple[ClientWindow, dict[int, int]]
"""The result of a trial, and partition → end offset."""


@pytest.fixture(scope="module")
def refused(kafka_for_all: Testbed) -> dict[str, Written]:
    """Client → result of a trial whose records are too large for the brokers."""

    def write(bench: Bench, client: str) -> Written:
        window = bench.run(
            client=client, message_bytes=2_000_000, rate_records_per_s=5.0, pool_bytes=8_000_000,
            measure_s=0.8,
        )  # fmt: skip
        return window, bench.end_offsets()

    return benches_at_once(kafka_for_all, LIBRARIES, write)


@pytest.mark.parametrize("client", LIBRARIES)
@pytest.mark.parametrize("acks", ["0", "all"])
def test_acknowledged_equals_growth(bench: Bench, client: str, acks: str) -> None:
    window = bench.run(client=client, acks=acks, measure_s=1.0)
    counts = window.counts
    if acks == "0":  # brokers may still be writing
        assert becomes(lambda: sum(bench.end_offsets().values()) >= counts.acked_total)
    assert counts.acked_by_partition == {
        partition: end for partition, end in bench.end_offsets().items() if end
    }
    assert counts.offered_records == pytest.approx(600, rel=0.01)
    # On a busy machine the last turn leaves due records, and counts them; a broker that stalls at
    # the end of the window delays some.
    assert 450 < counts.acked_total + counts.unsent_own_records <= 909
    assert counts.failed_total == 0
    assert 0 < window.latency.p50_ms < 1_000


@pytest.mark.parametrize("client", LIBRARIES)
def test_a_refused_record_is_counted_by_its_error(refused: dict[str, Written], client: str) -> None:
    window, ends = refused[client]
    assert set(window.counts.errors) == {"MessageSizeTooLargeError"}
    assert window.counts.acked_total == 0 == sum(ends.values())
