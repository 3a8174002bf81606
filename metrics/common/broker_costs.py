"""What answers about many partitions cost a broker or the driver, and how much a run may take.

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

SAMPLE_PARTITION_S = 0.3e-6
"""CPU time of a broker for each partition that it has, in a sample by JMX: four gauges count
them. An estimate [s]."""

SAMPLES_SHARE_MAX = 0.0075
"""Largest share of a broker's core for what partitions add to the samples [ratio]."""

END_S = 8e-6
"""CPU time of the driver for the end offset of each replica: its request, and its answer [s]."""

ENDS_SHARE_MAX = 0.02
"""Largest share of a core of the driver for the end offsets of replicas [ratio]."""

ENDS_LEAST = 4
"""Fewest readings of these end offsets in a window."""

ORDINARY_LINES = 10_000
"""Lines of an exporter's page up to which a scrape counts as that of a broker with few
partitions."""


def topics_interval_s(partitions: int) -> float:
    """Least time between two requests for all topics, which have so many partitions [s]."""
    return partitions * PARTITION_S / TOPICS_SHARE_MAX


def log_dirs_interval_s(replicas: int) -> float:
    """Least time between two requests to a broker for its log directories [s].

    Args:
        replicas: number of replicas that the broker has.
    """
    return replicas * LOG_S / LOG_DIRS_SHARE_MAX


def jmx_interval_s(partitions: int) -> float:
    """Least time between two samples of a broker by JMX [s].

    Args:
        partitions: number of partitions that the broker has, led or followed.
    """
    return partitions * SAMPLE_PARTITION_S / SAMPLES_SHARE_MAX


def scrape_interval_s(took_s: float, lines: int) -> float:
    """Least time between two scrapes of an exporter in a broker [s].

    An exporter reads all beans of its broker, most of which are those of single partitions, also
    where it is asked for few series.

    Args:
        took_s: length of a scrape, in which the broker computes [s].
        lines: number of lines of the whole page.
    """
    grown = max(0.0, 1.0 - ORDINARY_LINES / max(1, lines))
    return took_s * grown / SAMPLES_SHARE_MAX


def ends_interval_s(replicas: int, interval_s: float, window_s: float) -> float:
    """Time between two readings of the end offsets of a trial's replicas [s].

    Args:
        replicas: number of replicas on all brokers.
        interval_s: intended time between samples [s].
        window_s: length of the window [s].
    """
    return max(interval_s, min(replicas * END_S / ENDS_SHARE_MAX, window_s / ENDS_LEAST))
