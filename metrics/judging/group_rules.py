"""What consumer groups say about a trial: how fast they fall behind, or that it is no answer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from metrics.judging.indicators import consumer_lag
from metrics.judging.thresholds import Thresholds
from metrics.trial.consumption import GroupWindow, Stint
from metrics.trial.evidence import ClientWindow
from metrics.trial.judgement import Reason


def lag_growth_per_s(client: ClientWindow) -> dict[str, float]:
    """Consumer group → slope of its lag over the window [records/s], where it has one."""
    return {
        str(group.group): group.lag_slope_records_per_s
        for group in client.groups
        if not math.isnan(group.lag_slope_records_per_s)
    }


def consumers_limited(client: ClientWindow, thresholds: Thresholds) -> list[Reason]:
    """Lag that the consumers' own tasks brought about, as they had no time left."""
    busy, limit = client.consumer_loop_busy, thresholds.loop_busy_max
    if busy < limit or not consumer_lag(client, lag_growth_per_s(client), thresholds):
        return []
    text = (
        f"the consumers were the limit: a task of theirs was busy {busy:.0%} of the window while "
        "lag grew; use more executors or cores"
    )
    return [Reason("generator_limited", text, busy, limit)]


def consumption_mismatch(
    client: ClientWindow, end_offsets: Mapping[int, int] | None
) -> list[Reason]:
    """What each group read against the partitions' end offsets after the trial, if known.

    A group reads each partition in one range without a break, up to what was acknowledged.
    It can neither have holes nor go beyond the end, and the batches must have held as many
    records as offsets. It may end early only when its lag says that it could not keep up.
    """
    if end_offsets is None:
        return []
    found = [
        _what_differs(group, end_offsets) or _what_is_missing(group, client.acked_by_partition)
        for group in client.groups
    ]
    return [Reason("consumption_mismatch", each[0], float(each[1]), 0.0) for each in found if each]


def _what_is_missing(group: GroupWindow, acked: Mapping[int, int]) -> tuple[str, int] | None:
    read: Counter[int] = Counter()
    for stint in group.read_by_partition:
        read[stint.partition] += stint.length
    missing = {p: records - read[p] for p, records in acked.items() if records > read[p]}
    lag = group.lag_records[-1] if group.lag_records else 0
    if sum(missing.values()) <= lag:
        return None
    return (
        f"consumer group {group.group} did not read {sum(missing.values())} acknowledged records "
        f"of {len(missing)} partitions, first of partition {min(missing)}, although its lag was "
        f"{lag} at the window's end"
    ), sum(missing.values())


def _what_differs(group: GroupWindow, ends: Mapping[int, int]) -> tuple[str, int] | None:
    name = f"consumer group {group.group}"
    seen: dict[int, Stint] = {}
    for stint in group.read_by_partition:
        before = seen.get(stint.partition)
        if before is not None:
            missing = stint.from_offset - before.to_offset
            return (
                f"{name} missed {missing} records of partition {stint.partition} from offset "
                f"{before.to_offset} on"
            ), missing
        seen[stint.partition] = stint
        beyond = stint.to_offset - ends.get(stint.partition, 0)
        if beyond > 0:
            return (
                f"{name} read {beyond} records beyond the end offset of partition {stint.partition}"
            ), beyond
        if stint.records != stint.length:
            return (
                f"{name} read {stint.records} records in {stint.length} offsets of partition "
                f"{stint.partition} from offset {stint.from_offset} on"
            ), abs(stint.length - stint.records)
    return None
