"""The duration of a fixed volume."""

from __future__ import annotations

from metrics.traffic.pattern import TrafficPattern
from metrics.trial.client import ClientWindow


def moved_s(pattern: TrafficPattern, client: ClientWindow) -> float | None:
    """The time at which the last record of a fixed volume was acknowledged, or was read where no
    record was offered [s].

    It counts from the start of the load. It is None without a fixed volume, and where a part of
    the volume was not moved by the end of the drain.
    """
    each = pattern.records_each
    if each is None:
        return None
    if each:
        is_whole = client.counts.acked_total == each * pattern.producers
        return client.counts.last_acked_s if is_whole else None
    ends = [group.counts.last_read_s for group in client.groups]
    is_whole = not any(group.counts.unread_records for group in client.groups)
    known = [end for end in ends if end is not None]
    return max(known) if is_whole and known and len(known) == len(ends) else None
