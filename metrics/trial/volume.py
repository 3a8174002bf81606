"""How long a fixed volume took. Pure."""

from __future__ import annotations

from metrics.traffic.pattern import TrafficPattern
from metrics.trial.client import ClientWindow


def moved_s(pattern: TrafficPattern, client: ClientWindow) -> float | None:
    """When the last record of a fixed volume was acknowledged, or read where none was offered [s].

    Counted from the start of the load. None where no volume is fixed, and where not all of it was
    moved by the end of the drain.
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
