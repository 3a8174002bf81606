"""Producers with transactions on real brokers: committed records are read exactly once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from metrics.judging.thresholds import Thresholds
from metrics.judging.validity import accounting_mismatch
from metrics.trial.client import ClientWindow
from metrics.trial.evidence import Evidence
from metrics.trial.others import TRANSACTION_LOG_RECORD_BYTES
from tests.support.engine_bench import Bench, bench_on

TRANSACTIONS: dict[str, Any] = {
    "acks": "all",
    "enable_idempotence": True,
    "transaction_duration_ms": 100.0,
}


@pytest.mark.together
def test_committed_records_are_read_exactly_once(kafka_testbed: Testbed) -> None:
    with bench_on(kafka_testbed, replicas=2) as bench:
        done: ClientWindow = bench.run(**TRANSACTIONS)
        ends, records = bench.end_offsets(), bench.read_back(isolation_level="read_committed")
    read, counts = Counter(record.partition for record in records), done.counts
    assert (counts.failed_total, counts.transactions_aborted, counts.aborted_records) == (0, 0, 0)
    assert counts.acked_total > 500
    assert read == Counter(counts.acked_by_partition)
    taken = read + Counter(counts.control_records_by_partition)
    assert taken == Counter({p: end for p, end in ends.items() if end}), "to the marker"
    assert 1 <= counts.transactions_committed <= 2 * 15, "two producers for 1.5 s"
    assert counts.control_records > counts.transactions_committed, "the warm-up also has some"
    assert (counts.commit_mean_ms or 0) > 0
    evidence = Evidence(done, end_offsets={p: (0, end) for p, end in ends.items()})
    assert accounting_mismatch(evidence, Thresholds()) == []


@pytest.mark.long
def test_the_log_of_transactions_has_the_documented_size(tmp_path: Path) -> None:
    """It uses separate brokers, as the log belongs to the cluster, and names as long as a run's."""
    with (
        start("default", brokers=1, name="log", root=tmp_path) as testbed,
        bench_on(testbed, name="redline-20261123-120000") as bench,
    ):
        done = bench.run(trial_id="20261123-120000-ab12", measure_s=5.0, **TRANSACTIONS)
        logs = list(Path(testbed.folder).rglob("__transaction_state-*/*.log"))
        taken = sum(path.stat().st_size for path in logs)
    counts = done.counts
    assert counts.transactions_committed > 50
    # Each producer was registered before the load and after it.
    records = counts.transaction_log_records + 2 * 2
    assert taken / records == pytest.approx(TRANSACTION_LOG_RECORD_BYTES, rel=0.15)


@pytest.mark.together
def test_wire_consumers_skip_the_control_records_of_transactions(bench: Bench) -> None:
    client = bench.run(consumers={"groups": 1, "members": 2, "check_crcs": True}, **TRANSACTIONS)
    grown = sum(bench.growth().values())
    (group,) = client.groups
    assert group.records_total == client.counts.acked_total
    assert group.counts.control_records == client.counts.control_records > 10
    assert grown == client.counts.acked_total + client.counts.control_records
    assert (group.counts.unread_records, group.counts.errors) == (0, {})
