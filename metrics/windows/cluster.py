"""The window of all brokers together, from samples that were taken at the same moments."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from metrics.sources.sample import BrokerSample
from metrics.windows.spans import good_samples, isr_changed


def any_isr_changed(
    samples: Sequence[BrokerSample],
    broker_ids: Iterable[int],
    start_s: float,
    end_s: float,
    at_rest: Mapping[int, float] | None = None,
) -> list[bool]:
    """Whether at least one broker shows an ISR change or under-replicated partitions, for each
    sampling time inside [start_s, end_s]; empty where no broker shows them.

    Brokers are sampled at the same moments, up to some milliseconds: the times of the broker with
    the most samples count, and each other sample belongs to the nearest of them.

    Args:
        at_rest: broker id → under-replicated partitions before the run.
    """
    baseline, good = at_rest or {}, good_samples(samples)
    found: list[list[tuple[float, bool]]] = []
    for broker_id in broker_ids:
        known = [
            each
            for each in good.get(broker_id, ())
            if "under_replicated_partitions" in each.values and each.at_s <= end_s
        ]
        pairs = pairwise([*known[:1], *known])
        own = baseline.get(broker_id, 0.0)
        found.append([(b.at_s, isr_changed(a, b, own)) for a, b in pairs if b.at_s >= start_s])
    moments = [at_s for at_s, _ in max(found, key=len, default=[])]
    changed = {_nearest(moments, at_s) for each in found for at_s, is_changed in each if is_changed}
    return [each in changed for each in moments]


def any_isr_changed_share(
    samples: Sequence[BrokerSample],
    broker_ids: Iterable[int],
    start_s: float,
    end_s: float,
    at_rest: Mapping[int, float] | None = None,
) -> float | None:
    """The share of these times with a change [ratio]; None where no broker shows them."""
    changed = any_isr_changed(samples, broker_ids, start_s, end_s, at_rest)
    return sum(changed) / len(changed) if changed else None


def _nearest(moments: Sequence[float], at_s: float) -> float:
    """The nearest of the ordered moments; the earlier one of two at the same distance."""
    after = bisect_left(moments, at_s)
    around = moments[max(0, after - 1) : after + 1]
    return min(around, key=lambda moment: abs(moment - at_s))
