"""Clusters, workloads and goals, read from files and checked once into frozen objects."""

from jobs.config.cluster import Cluster
from jobs.config.goal import Goal
from jobs.config.loading import (
    Configuration,
    available,
    describe,
    load,
    load_cluster,
    load_goal,
    load_recorded,
    load_workload,
)
from jobs.config.workload import Workload

__all__ = [
    "Cluster",
    "Configuration",
    "Goal",
    "Workload",
    "available",
    "describe",
    "load",
    "load_cluster",
    "load_goal",
    "load_recorded",
    "load_workload",
]
