"""What a trial proves of the disks, and the sentences of the answer that state it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.runs.steady import with_proof
from metrics.judging.disk_proof import (
    DELETE_DELAY_S,
    STEADY_SHARE_MAX,
    deleted_after_s,
    disk_proof,
    fills_memory,
    full_after_s,
    proof_of,
)
from metrics.reporting.limit_answer import answer_of, proven_words, steady_words
from metrics.tables.boundary import Boundary
from metrics.traffic.pattern import TopicOptions
from metrics.trial.trial import Trial
from metrics.windows.write_back import WriteBackWindow
from search.model import Verdict
from tests.support.evidence import START_S, client
from tests.support.rows import BOUNDARY, OVERLOADED, traffic, trial

BROKERS = (1, 2)


def host(written: float, settled: float | None = None, **changes: Any) -> WriteBackWindow:
    """A host whose brokers took in 64 MB/s for 90 s, and whose disk wrote this share of it."""
    taken = 90 * 64e6
    window = WriteBackWindow(
        "b",
        BROKERS,
        duration_s=90.0,
        taken_bytes=taken,
        written_bytes=written * taken,
        unwritten_start_bytes=0.2e9,
        dirty_limit_bytes=4.2e9,
        settled_s=0.0 if settled is None else 64.0,
        settled_taken_bytes=None if settled is None else 64 * 64e6,
        settled_written_bytes=None if settled is None else settled * 64 * 64e6,
    )
    return replace(window, **changes)


def test_a_load_is_proven_once_disks_wrote_all_but_a_twentieth_of_it() -> None:
    for share, on_disk in ((0.95, True), (0.949, False), (1.3, True)):
        proof = disk_proof([host(0.7, share)], BROKERS, 90.0)
        assert proof.on_disk is on_disk is not bool(proof.why)
        assert proof.taken_bytes == 90 * 64e6
        assert proof.absorbed_bytes == pytest.approx(0.3 * 90 * 64e6)
        assert proof.written_share == pytest.approx(share)


def test_memory_that_grows_proves_nothing_and_is_full_after_its_room() -> None:
    young = host(0.0, None, duration_s=30.0, taken_bytes=30 * 64e6, written_bytes=0.0)
    for window, growth, why in (
        (host(10 / 64, 10 / 64), 54e6, "the disks of host b wrote 16 % of the received bytes"),
        (young, 64e6, "only a window of 60 s or longer shows the write-back"),
    ):
        proof = disk_proof([window], BROKERS, window.duration_s)
        assert (proof.on_disk, proof.why) == (False, why)
        assert proof.full_s == pytest.approx(4.0e9 / growth), "room over growth"
    assert full_after_s(host(1.0, 1.0)) is None
    assert full_after_s(host(0.5, 0.5, dirty_limit_bytes=None)) is None


def test_the_slowest_host_decides_and_the_first_full_memory_counts() -> None:
    good = replace(host(1.0, 1.0), host="a", brokers=(3,))
    small = replace(host(0.5, 0.5), host="c", brokers=(4,), dirty_limit_bytes=1.2e9)
    proof = disk_proof([good, host(0.9, 0.9), small], (*BROKERS, 3, 4), 90.0)
    assert proof.why == "the disks of host c wrote 50 % of the received bytes"
    assert proof.full_s == pytest.approx(1.0e9 / 32e6)
    assert proof.taken_bytes == 3 * 90 * 64e6


def test_what_hosts_do_not_show_is_not_known() -> None:
    unknown = "the bytes received by brokers or written by disks are not known"
    for windows, why in (
        ([], "the brokers' hosts do not show the bytes that their disks write"),
        ([replace(host(1.0, 1.0), brokers=(1,))], "the brokers' hosts do not show"),
        ([host(1.0, 1.0, taken_bytes=None)], unknown),
        ([host(1.0, 1.0, written_bytes=None)], unknown),
    ):
        proof = disk_proof(windows, BROKERS, 90.0)
        assert (proof.on_disk, proof.full_s) == (None, None)
        assert proof.why.startswith(why)


def test_records_that_retention_deletes_before_they_are_written_prove_nothing() -> None:
    early = disk_proof([host(1.0, 1.0)], BROKERS, 90.0, deleted_after_s=35.0)
    assert early.on_disk is False
    assert early.why == (
        "retention may delete a record after 35 s, and the kernel writes it after 30 s; "
        "raise retention.bytes"
    )
    assert disk_proof([host(1.0, 1.0)], BROKERS, 90.0, deleted_after_s=35.1).on_disk


def test_the_age_of_deletion_follows_from_retention_and_the_rate_of_a_partition() -> None:
    load = traffic(
        10, 1_000, 1_000.0, topic=TopicOptions(partitions_per_broker=5, replication_factor=2)
    )
    config = {"retention.bytes": "20000000"}
    limited = replace(load, topic=replace(load.topic, config=config))
    assert deleted_after_s(limited) == pytest.approx(20.0 + DELETE_DELAY_S), "1 MB/s a partition"
    assert deleted_after_s(limited, 1.0) == pytest.approx(21.0)
    own = {**config, "file.delete.delay.ms": "500"}
    assert deleted_after_s(replace(load, topic=replace(load.topic, config=own))) == 20.5
    short = {"retention.ms": "4000", "retention.bytes": "-1"}
    timed = replace(load, topic=replace(load.topic, config=short))
    assert deleted_after_s(timed) == 4.0 + DELETE_DELAY_S
    endless = {"retention.ms": "-1", "retention.bytes": "-1"}
    assert deleted_after_s(replace(load, topic=replace(load.topic, config=endless))) == float("inf")


def test_a_load_fills_memory_where_it_could_take_a_tenth_of_the_room() -> None:
    windows = [host(1.0, 1.0)]  # 64 MB/s beside a room of 4 GB
    enough_s = STEADY_SHARE_MAX * 4.0e9 / 64e6
    assert fills_memory(windows, enough_s * 1.01) is True
    assert fills_memory(windows, enough_s * 0.99) is False
    assert fills_memory([], 100.0) is None
    assert fills_memory([host(1.0, 1.0, dirty_limit_bytes=None)], 100.0) is None


# --- answers ----------------------------------------------------------------------


def sustained(number: int, producers: int, seconds: float, *windows: WriteBackWindow) -> Trial:
    seen = replace(client(), end_s=START_S + seconds)
    judged = replace(OVERLOADED, verdict=Verdict.SUSTAINED, reasons=())
    return trial(
        number,
        client=seen,
        write_back=windows,
        pattern=traffic(producers),
        judgements={"default": judged},
    )


def bound(sustained_load: int = 20) -> Boundary:
    return replace(
        BOUNDARY, np_sustained=sustained_load, load_sustained=sustained_load, load_overloaded=21
    )


def test_a_limit_states_the_longest_trial_that_sustained_it_and_what_memory_took(
    snapshot: SnapshotAssertion,
) -> None:
    half = host(10 / 64, None, duration_s=30.0, taken_bytes=1.9e9, written_bytes=0.3e9)
    trials = [sustained(1, 20, 12.0), sustained(2, 20, 30.0, half), sustained(3, 19, 90.0)]
    found = with_proof(bound(), trials, "default")
    assert found.proven_s == pytest.approx(30.0)
    assert found.proven_bytes == 1.9e9
    assert found.memory_bytes == pytest.approx(1.6e9)
    assert found.memory_full_s == pytest.approx(4.0e9 / 1.6e9 * 30)
    assert found.steady_load is None
    assert proven_words(found) == snapshot
    assert answer_of(found).caveat == f"caveat: {proven_words(found)}"


def test_a_trial_that_is_long_enough_proves_the_steady_limit(snapshot: SnapshotAssertion) -> None:
    slow, fast = host(0.2, 0.2), host(0.99, 0.99)
    trials = [
        sustained(1, 20, 90.0, slow),
        sustained(2, 12, 90.0, fast),
        sustained(3, 8, 90.0, fast),
    ]
    found = with_proof(bound(), trials, "default")
    assert (found.proven_on_disk, found.steady_load, found.steady_s) == (False, 12.0, 90.0)
    assert found.steady_mb_per_s == pytest.approx(traffic(12).mb_per_s)
    assert [proven_words(found), steady_words(found)] == snapshot
    above = with_proof(bound(), [*trials, sustained(5, 25, 90.0, fast)], "default")
    assert above.steady_load == 12.0, "a load above the limit is not its steady limit"
    proven = with_proof(bound(), [*trials, sustained(4, 20, 70.0, fast)], "default")
    assert proven.proven_on_disk is True, "the proof counts for more than a longer window"
    assert (proven.proof_note, proven.memory_full_s) == ("", None)
    assert proven_words(proven) == snapshot


def test_a_limit_states_which_disks_count_where_those_of_the_log_dirs_are_not_known() -> None:
    note = "all disks of host b count (sda, sdb), because the disks of its log dirs are not known"
    several = host(0.99, 0.99, disks=("sda", "sdb"))
    found = with_proof(bound(), [sustained(1, 20, 90.0, several)], "default")
    assert (found.proven_on_disk, found.proof_note, found.steady_note) == (True, note, note)
    assert proven_words(found).endswith(f", 5.8 GB; {note}")
    slow = with_proof(
        bound(), [sustained(1, 20, 90.0, replace(several, settled_written_bytes=1e9))], "default"
    )
    assert slow.proof_note == f"the disks of host b wrote 24 % of the received bytes; {note}"
    for known in (replace(several, disks_known=True), replace(several, disks=("sda",))):
        plain = with_proof(bound(), [sustained(1, 20, 90.0, known)], "default")
        assert (plain.proof_note, plain.steady_note) == ("", "")


def test_a_limit_of_hosts_that_show_nothing_is_proven_for_its_time_only(
    snapshot: SnapshotAssertion,
) -> None:
    found = with_proof(bound(), [sustained(1, 20, 30.0)], "default")
    assert (found.proven_on_disk, found.proven_bytes) == (None, None)
    assert proven_words(found) == snapshot
    assert steady_words(found) == ""
    nothing = with_proof(bound(0), [], "default")
    assert (nothing.proven_s, proven_words(nothing)) == (None, "")
    why = "the budget did not allow a hold of 1 min 45 s"
    assert steady_words(replace(BOUNDARY, steady_note=why)) == f"steady: not proven; {why}"
    failed = replace(BOUNDARY, proven_s=30.0, failed_after_s=95.0, mb_per_s=64.0)
    assert proven_words(failed).endswith("; measured: 64.0 MB/s for 1 min 35 s")


def test_bytes_that_brokers_recompress_are_not_those_of_disks() -> None:
    held = sustained(1, 20, 90.0, host(1.0, 1.0))
    for kept, is_known in (("producer", True), ("zstd", False)):
        topic = replace(held.pattern.topic, config={"compression.type": kept})
        found = proof_of(replace(held, pattern=replace(held.pattern, topic=topic)))
        assert (found.on_disk is not None) == is_known
        assert ("codec uncompressed with compression.type zstd" in found.why) != is_known
