"""The batches that producers send in one request, as the times of batches show them.

Headers state no requests. A producer that keeps to one partition sends a batch in each. One whose
keys choose partitions has an open batch in several of them; when the first of a broker's batches
has waited for `linger.ms`, all open batches for this broker go into one request. So batches of one
producer that were opened within a linger at one broker, each in another partition, are a request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from metrics.learning.tally import BatchTally, Opened

_BATCHES_LEAST = 20
"""Number of batches of a broker below which no requests are counted."""


def batches_per_request(
    batches: BatchTally, leaders: Mapping[int, int], linger_ms: float
) -> float | None:
    """Mean number of batches of a request; None where producer ids or times do not show it.

    Args:
        leaders: partition → broker that leads it.
        linger_ms: longest time for which batches were open [ms].
    """
    led: dict[int, list[Opened]] = defaultdict(list)
    for each in batches.opened:
        led[leaders.get(each.partition, -1)].append(each)
    count = requests = 0
    for opened in led.values():
        seen = _in_all_partitions(opened)
        if len(seen) >= _BATCHES_LEAST:
            count += len(seen)
            requests += _requests(seen, linger_ms)
    return count / requests if requests else None


def _in_all_partitions(opened: list[Opened]) -> list[Opened]:
    """The batches from the time at which all partitions were read until one was not any more."""
    times: dict[int, list[int]] = defaultdict(list)
    for each in opened:
        times[each.partition].append(each.first_ms)
    from_ms = max(map(min, times.values()))
    to_ms = min(map(max, times.values()))
    return [each for each in opened if from_ms <= each.first_ms <= to_ms]


def _requests(opened: list[Opened], linger_ms: float) -> int:
    by_producer: dict[int, list[Opened]] = defaultdict(list)
    for each in opened:
        by_producer[each.producer_id].append(each)
    requests = 0
    for own in by_producer.values():
        until_ms, taken = float("-inf"), set[int]()
        for each in sorted(own, key=lambda one: one.first_ms):
            if each.first_ms >= until_ms or each.partition in taken:
                requests += 1
                until_ms, taken = each.first_ms + linger_ms, set()
            taken.add(each.partition)
    return requests
