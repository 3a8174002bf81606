"""What a trial proves of the disks: whether they wrote its load, or memory took it. Pure.

A load is proven on disk when the disks of each host wrote `WRITTEN_MIN` of what its brokers took
in, replicas included, over at least twice the age at which the kernel writes a page, and retention
could delete nothing before it was written. Without that proof the load still may last: in its first
half minute every broker's memory takes all. So no verdict follows from it, but the answer states
what memory took and when it would be full.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from metrics.traffic.pattern import TrafficPattern
from metrics.trial.trial import Trial
from metrics.units import format_ratio
from metrics.windows.write_back import SETTLED_EXPIRIES, WRITTEN_MIN, WriteBackWindow

DELETE_DELAY_S = 60.0
"""Kafka's default of log.segment.delete.delay.ms [s]."""
FLUSHER_S = 5.0
"""Time between two looks of the kernel for pages to write (vm.dirty_writeback_centisecs) [s]."""
STEADY_SHARE_MAX = 0.1
"""Share of the memory's room that a load may fill in a hold without being held [ratio]."""


@dataclass(frozen=True)
class DiskProof:
    """What a load proves of the disks; unknown values are None.

    Attributes:
        on_disk: True if the disks wrote the load; None if the hosts do not show it.
        duration_s: length of the window [s].
        taken_bytes: bytes that the brokers took in, replicas included [B].
        absorbed_bytes: bytes of these that memory took [B].
        full_s: time from the beginning of the window until the memory of a host is full at this
            rate; None if it does not fill [s].
        written_share: share of the bytes taken in that the disks of the slowest host wrote in
            settled write-back [ratio].
        fastest_share: highest rate at which the disks of the slowest host wrote for some seconds,
            over the rate at which its brokers took in [ratio].
        why: why the load is not proven on disk; empty if it is.
        is_early: True if the window is too short for any write-back, so that memory takes all.
        disks_note: which disks count, where those of the log dirs are not known; else empty.
    """

    on_disk: bool | None
    duration_s: float
    taken_bytes: float | None = None
    absorbed_bytes: float | None = None
    full_s: float | None = None
    written_share: float | None = None
    why: str = ""
    is_early: bool = False
    fastest_share: float | None = None
    disks_note: str = ""

    @property
    def note(self) -> str:
        """Why the load is not proven on disk, and which disks count; empty if both are plain."""
        return "; ".join(filter(None, (self.why, self.disks_note)))


def disk_proof(
    windows: Sequence[WriteBackWindow],
    brokers: Collection[int],
    duration_s: float,
    deleted_after_s: float = math.inf,
) -> DiskProof:
    """Decide whether the disks wrote what the brokers took in.

    Args:
        windows: write-back of the brokers' hosts in the window.
        brokers: ids of the brokers under load.
        duration_s: length of the window [s].
        deleted_after_s: least age at which retention deletes a record, see `deleted_after_s` [s].
    """
    unknown = _why_unknown(windows, brokers)
    if unknown:
        taken = [each.taken_bytes for each in windows]
        return DiskProof(None, duration_s, _total(taken) if taken else None, why=unknown)
    expire_s = max(each.dirty_expire_s for each in windows)
    shares = [each.settled_share for each in windows]
    slowest = min((share for share in shares if share is not None), default=None)
    why = _why_not(windows, slowest, deleted_after_s, expire_s)
    return DiskProof(
        not why,
        duration_s,
        _total([each.taken_bytes for each in windows]),
        _total([each.absorbed_bytes for each in windows]),
        None if not why else min(filter(None, map(full_after_s, windows)), default=None),
        slowest,
        why,
        duration_s <= expire_s + FLUSHER_S,
        min(filter(None, map(_fastest_share, windows)), default=None),
        _disks_note(windows),
    )


def _disks_note(windows: Sequence[WriteBackWindow]) -> str:
    unknown = [each for each in windows if not each.disks_known and len(each.disks) > 1]
    if not unknown:
        return ""
    first = unknown[0]
    return (
        f"all disks of host {first.host} count ({', '.join(first.disks)}), as those of its log "
        "dirs are not known"
    )


def _fastest_share(window: WriteBackWindow) -> float | None:
    if not window.taken_bytes or window.fastest_bytes_per_s is None:
        return None
    return window.fastest_bytes_per_s / (window.taken_bytes / window.duration_s)


def proof_of(trial: Trial) -> DiskProof:
    """What a trial proves of the disks."""
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
    """Why bytes that brokers take in are not those that disks write; empty where they are."""
    for each in pattern.loads:
        sent = each.producer.options.compression.replace("none", "uncompressed")
        kept = each.topic.config.get("compression.type", "producer")
        if kept not in {"producer", sent}:
            return (
                f"brokers write batches of codec {sent} as compression.type {kept}, so that disks "
                "do not write the bytes that brokers take in"
            )
    return ""


def full_after_s(window: WriteBackWindow) -> float | None:
    """Time from the beginning of a window until the host's memory is full at its rate [s].

    It is the room at the beginning over what memory takes each second. None if it takes nothing, or
    if the room is not known.
    """
    absorbed, room = window.absorbed_bytes, window.room_bytes
    if not absorbed or room is None or not window.duration_s:
        return None
    return room / (absorbed / window.duration_s)


def fills_memory(
    windows: Sequence[WriteBackWindow], hold_s: float, ratio: float = 1.0
) -> bool | None:
    """Whether a load that is held could fill more than a tenth of a host's room for dirty pages.

    Args:
        windows: write-back of the brokers' hosts in a trial.
        hold_s: length of the hold [s].
        ratio: the load over that of the trial.

    Returns:
        None where the hosts do not show their room or what their brokers take in.
    """
    known = [
        each.taken_bytes / each.duration_s * ratio * hold_s > STEADY_SHARE_MAX * each.room_bytes
        for each in windows
        if each.taken_bytes is not None and each.duration_s and each.room_bytes is not None
    ]
    return any(known) if known and len(known) == len(windows) else None


def deleted_after_s(
    pattern: TrafficPattern, delay_s: float = DELETE_DELAY_S, closed_bytes_per_s: float = 0.0
) -> float:
    """The least age at which retention deletes a record's file [s]; infinite without retention.

    Args:
        pattern: the load, which fills the partitions evenly.
        delay_s: the brokers' shortest log.segment.delete.delay.ms [s].
        closed_bytes_per_s: payload of a load without a rate, a closed loop [B/s].
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
        return "the brokers' hosts do not show what their disks write"
    if any(each.taken_bytes is None or each.written_bytes is None for each in windows):
        return "what brokers took in or disks wrote is not known throughout the window"
    return ""


def _why_not(
    windows: Sequence[WriteBackWindow], slowest: float | None, deleted_s: float, expire_s: float
) -> str:
    """Why the load is not proven on disk; empty if it is."""
    if deleted_s <= expire_s + FLUSHER_S:
        return (
            f"retention may delete a record after {deleted_s:.0f} s, and the kernel writes it "
            f"after {expire_s:.0f} s; raise retention.bytes"
        )
    if slowest is None or any(each.settled_share is None for each in windows):
        return f"write-back shows in {SETTLED_EXPIRIES * expire_s:.0f} s and longer"
    if slowest < WRITTEN_MIN:
        host = next(each.host for each in windows if each.settled_share == slowest)
        return f"the disks of host {host} wrote {format_ratio(slowest)} of it"
    return ""


def _total(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return sum(known) if len(known) == len(values) else None
