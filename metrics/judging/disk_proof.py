"""The proof that disks wrote the bytes of a load, and that the bytes did not stay in memory only.

A load is proven on disk under three conditions. First, the disks of each host wrote at least the
share `WRITTEN_MIN` of the bytes that the host's brokers received, replicas included. Second, the
window covers at least twice the age at which the kernel writes a page. Third, retention keeps each
record for longer than the kernel waits before it writes the record to a disk. In the first half
minute of a load, the memory of the brokers' hosts takes all bytes, so a trial can sustain a load
that is not proven on disk. The verdict of a trial does not depend on whether the load is proven on
disk. If the load is not proven on disk, the answer contains two values. The first value is the
number of bytes that the page cache took and no disk wrote. The second value is the time after which
the page cache would be full of unwritten bytes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from metrics.traffic.pattern import TrafficPattern
from metrics.trial.trial import Trial
from metrics.units import format_ratio
from metrics.windows.broker import over, whole
from metrics.windows.write_back import SETTLED_EXPIRIES, WRITTEN_MIN, WriteBackWindow

DELETE_DELAY_S = 60.0
"""Kafka's default of log.segment.delete.delay.ms [s]."""
FLUSHER_S = 5.0
"""Time between two checks of the kernel for old dirty pages (vm.dirty_writeback_centisecs) [s]."""
STEADY_SHARE_MAX = 0.1
"""Without `search.steady_s` and `search.to_failure`, a hold is made only if the load would fill
more than this share of a host's memory for dirty pages during the hold [ratio]. A hold is a long
trial that shows whether disks can write the load.
"""


@dataclass(frozen=True)
class DiskProof:
    """The evidence that disks wrote the bytes of a load. Unknown values are None.

    Attributes:
        on_disk: True if the disks wrote the bytes of the load, or None if the hosts do not show how
            much their disks wrote.
        duration_s: length of the window [s].
        taken_bytes: bytes that the brokers received, replicas included [B].
        absorbed_bytes: received bytes that memory held and no disk wrote [B].
        full_s: time from the beginning of the window [s] until the memory of the first host would
            be full at the window's rate. The time is None if the load is proven on disk, or if no
            memory fills.
        written_share: share of the received bytes that the disks wrote [ratio], on the host with
            the lowest share. Only the part of the window with steady write-back counts.
        fastest_share: highest write rate of a host's disks over 10 s, divided by the rate at which
            the brokers of this host received bytes [ratio]. The attribute is the lowest of these
            ratios over all hosts.
        why: reason why the load is not proven on disk, or an empty text if it is proven.
        disks_note: note for a host whose log dirs are on unknown disks, so that the writes of all
            its disks were added up. The note contains the names of these disks. It is empty if the
            disks of the log dirs are known.
    """

    on_disk: bool | None
    duration_s: float
    taken_bytes: float | None = None
    absorbed_bytes: float | None = None
    full_s: float | None = None
    written_share: float | None = None
    why: str = ""
    fastest_share: float | None = None
    disks_note: str = ""

    @property
    def note(self) -> str:
        """The texts `why` and `disks_note`, joined, or an empty text if both are empty."""
        return "; ".join(filter(None, (self.why, self.disks_note)))


def disk_proof(
    windows: Sequence[WriteBackWindow],
    brokers: Collection[int],
    duration_s: float,
    deleted_after_s: float = math.inf,
) -> DiskProof:
    """Decide whether the disks wrote the bytes that the brokers received.

    Args:
        windows: write-back windows of the brokers' hosts.
        brokers: ids of the brokers under load.
        duration_s: length of the window [s].
        deleted_after_s: minimum age at which retention deletes a record [s]. See `deleted_after_s`.
    """
    taken = whole([each.taken_bytes for each in windows])
    if unknown := _why_unknown(windows, brokers):
        return DiskProof(None, duration_s, taken, why=unknown)
    expire_s = max(each.dirty_expire_s for each in windows)
    shares = (each.settled_share for each in windows)
    slowest = min((share for share in shares if share is not None), default=None)
    fastest = (over(each.fastest_bytes_per_s, each.taken_per_s) for each in windows)
    why = _why_not(windows, slowest, deleted_after_s, expire_s)
    return DiskProof(
        not why,
        duration_s,
        taken,
        whole([each.absorbed_bytes for each in windows]),
        None if not why else min(filter(None, map(full_after_s, windows)), default=None),
        slowest,
        why,
        min(filter(None, fastest), default=None),
        _disks_note(windows),
    )


def _disks_note(windows: Sequence[WriteBackWindow]) -> str:
    for each in windows:
        if not each.disks_known and len(each.disks) > 1:
            return (
                f"all disks of host {each.host} count ({', '.join(each.disks)}), because the disks "
                "of its log dirs are not known"
            )
    return ""


def proof_of(trial: Trial) -> DiskProof:
    """The evidence that disks wrote the bytes that brokers received in a trial."""
    evidence = trial.evidence
    if why := _recompressed(trial.pattern):
        return DiskProof(None, evidence.client.duration_s, why=why)
    return disk_proof(
        evidence.write_back,
        [each.broker_id for each in evidence.brokers],
        evidence.client.duration_s,
        deleted_after_s(
            trial.pattern,
            evidence.cluster.delete_delay_s,
            1e6 * (evidence.client.achieved_mb_per_s or 0.0),
        ),
    )


def _recompressed(pattern: TrafficPattern) -> str:
    """A reason if brokers compress the received batches again, or an empty text if brokers store
    the batches as received.
    """
    for each in pattern.loads:
        sent = each.producer.options.compression.replace("none", "uncompressed")
        kept = each.topic.config.get("compression.type", "producer")
        if kept not in {"producer", sent}:
            return (
                f"brokers store batches of codec {sent} with compression.type {kept}, so the disks "
                "write other bytes than the brokers receive"
            )
    return ""


def full_after_s(window: WriteBackWindow) -> float | None:
    """Time from the beginning of a window until the host's memory is full at the window's rate [s].

    The time is the memory that was free for dirty pages at the beginning of the window, divided by
    the growth of the dirty pages per second. The result is None if the dirty pages do not grow, or
    if the host does not show these values.
    """
    return over(window.room_bytes, over(window.absorbed_bytes, window.duration_s))


def fills_memory(windows: Sequence[WriteBackWindow], hold_s: float) -> bool | None:
    """Whether a hold of a load could fill more than a tenth of a host's room for dirty pages.

    Args:
        windows: write-back windows of the brokers' hosts in a trial.
        hold_s: length of the hold [s].

    Returns:
        True if the hold could fill more than a tenth of the room for dirty pages on any host. None
        if a host does not show its room for dirty pages or the bytes that its brokers receive.
    """
    known = [
        each.taken_per_s * hold_s > STEADY_SHARE_MAX * each.room_bytes
        for each in windows
        if each.taken_per_s is not None and each.room_bytes is not None
    ]
    return any(known) if known and len(known) == len(windows) else None


def deleted_after_s(
    pattern: TrafficPattern, delay_s: float = DELETE_DELAY_S, closed_bytes_per_s: float = 0.0
) -> float:
    """The lowest age of a record at which retention deletes the record's file [s]; infinite if
    retention is off.

    Args:
        pattern: the load, which fills the partitions evenly.
        delay_s: shortest log.segment.delete.delay.ms of the brokers [s].
        closed_bytes_per_s: achieved payload rate of a closed loop [B/s]. A closed loop has no
            offered rate.
    """
    if pattern.parts:
        return min(deleted_after_s(each, delay_s) for each in pattern.parts)
    topic = pattern.topic
    own_ms = topic.properties.get("file.delete.delay.ms")
    delay_s = delay_s if own_ms is None else float(own_ms) / 1e3
    rate = pattern.records_per_s * pattern.message_bytes
    rate = rate if math.isfinite(rate) else closed_bytes_per_s
    retention_ms = float(topic.properties.get("retention.ms", "604800000"))
    age_s = math.inf if retention_ms < 0 else retention_ms / 1e3
    retention_bytes = float(topic.properties.get("retention.bytes", "-1"))
    if retention_bytes >= 0 and rate > 0:
        age_s = min(age_s, retention_bytes / (rate / max(1, pattern.partitions)))
    return age_s + delay_s


def _why_unknown(windows: Sequence[WriteBackWindow], brokers: Collection[int]) -> str:
    shown = {broker for each in windows for broker in each.brokers}
    if not windows or set(brokers) - shown:
        return "the brokers' hosts do not show the bytes that their disks write"
    if any(each.taken_bytes is None or each.written_bytes is None for each in windows):
        return "the bytes received by brokers or written by disks are not known in the whole window"
    return ""


def _why_not(
    windows: Sequence[WriteBackWindow], slowest: float | None, deleted_s: float, expire_s: float
) -> str:
    """The reason why the load is not proven on disk, or an empty text if the load is proven on
    disk.
    """
    if deleted_s <= expire_s + FLUSHER_S:
        return (
            f"retention may delete a record after {deleted_s:.0f} s, and the kernel writes it "
            f"after {expire_s:.0f} s; raise retention.bytes"
        )
    if slowest is None or any(each.settled_share is None for each in windows):
        least_s = SETTLED_EXPIRIES * expire_s
        return f"only a window of {least_s:.0f} s or longer shows the write-back"
    if slowest < WRITTEN_MIN:
        host = next(each.host for each in windows if each.settled_share == slowest)
        return f"the disks of host {host} wrote {format_ratio(slowest)} of the received bytes"
    return ""
