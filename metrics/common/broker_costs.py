"""What answers about many partitions cost a broker, and how much of it a run may take.

The figures are measured; docs/scale.md states how.
"""

from __future__ import annotations

PARTITION_S = 3e-6
"""CPU time of a broker for one partition in an answer about all topics [s]."""

LOG_S = 0.5e-6
"""CPU time of a broker for each replica that it has, in an answer about its log directories, also
where no replica is requested [s]."""

TOPICS_SHARE_MAX = 0.01
"""Largest share of a broker's core for answers about all topics while a load runs [ratio]."""

LOG_DIRS_SHARE_MAX = 0.005
"""Largest share of a broker's core for answers about log directories while a load runs [ratio]."""


def topics_interval_s(partitions: int) -> float:
    """Least time between two requests for all topics, which have so many partitions [s]."""
    return partitions * PARTITION_S / TOPICS_SHARE_MAX


def log_dirs_interval_s(replicas: int) -> float:
    """Least time between two requests to a broker for its log directories [s].

    Args:
        replicas: number of replicas that the broker has.
    """
    return replicas * LOG_S / LOG_DIRS_SHARE_MAX
