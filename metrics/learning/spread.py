"""The skew of a workload's partitions, from how unevenly records spread over those of topics."""

from __future__ import annotations

import math

from metrics.learning.fit import FITTED, Figure
from metrics.learning.parts import Part, TopicPart
from metrics.traffic.skew import exponent_of


def skew_of(part: Part, partitions: int) -> Figure | None:
    """The exponent at which the busiest partition gets the share that was seen.

    Of several topics, it is the mean by their records. None where all of them spread evenly.

    Args:
        partitions: partitions of each topic of the workload.
    """
    found = [_exponent(each, partitions) for each in part.topics]
    if not any(found):
        return None
    records_per_s = [each.records_per_s for each in part.topics]
    mean = sum(map(math.prod, zip(found, records_per_s, strict=True))) / part.records_per_s
    first = part.topics[found.index(max(found))].seen
    text = (
        f"the busiest partition of {first.facts.name} has {first.largest_over_mean:.3g} times the "
        "mean share; shares by Zipf's law, the first partition the busiest"
    )
    return Figure(round(mean, 3), FITTED, text, round(min(found), 3), round(max(found), 3))


def _exponent(topic: TopicPart, partitions: int) -> float:
    """The exponent of one topic; 0 for an even spread."""
    if not topic.seen.is_skewed:
        return 0.0
    share = max(topic.seen.partition_shares.values())
    return exponent_of(partitions, share * partitions)
