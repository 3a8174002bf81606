"""All tasks' shares of a consumer group as one window."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from metrics.trial.consumption import LAG_INTERVAL_S, GroupShare, GroupWindow, added, ranges
from metrics.trial.histograms import merged_histogram, quantile_ms
from metrics.trial.lag import lag_slope


def group_windows(shares: Iterable[GroupShare]) -> tuple[GroupWindow, ...]:
    """One window per group, by its number."""
    by_group: dict[int, list[GroupShare]] = defaultdict(list)
    for share in shares:
        by_group[share.group].append(share)
    return tuple(_merged(group, by_group[group]) for group in sorted(by_group))


def _merged(group: int, shares: list[GroupShare]) -> GroupWindow:
    latency = merged_histogram(share.latency_us for share in shares)
    lag = added([share.lag_records for share in shares])
    stints = [stint for share in shares for stint in share.stints]
    read = ranges(stints)
    errors: Counter[str] = Counter()
    for share in shares:
        errors.update(share.errors)
    return GroupWindow(
        group=group,
        members=sum(share.members for share in shares),
        records=sum(share.records for share in shares),
        wire_bytes=sum(share.wire_bytes for share in shares),
        latency_p50_ms=quantile_ms(latency, 50.0),
        latency_p95_ms=quantile_ms(latency, 95.0),
        latency_p99_ms=quantile_ms(latency, 99.0),
        latency_max_ms=quantile_ms(latency, 100.0),
        lag_records=lag,
        lag_slope_records_per_s=lag_slope(lag, LAG_INTERVAL_S),
        records_total=sum(stint.records for stint in stints),
        reread_records=sum(stint.length for stint in stints) - sum(one.length for one in read),
        read_by_partition=read,
        errors=dict(errors),
        unread_records=sum(share.unread_records for share in shares),
        rebalances=sum(share.rebalances for share in shares),
        notes=tuple(share.note for share in shares if share.note),
    )
