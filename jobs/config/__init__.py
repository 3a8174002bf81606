"""Clusters, workloads and goals: files are read and checked once, and become frozen objects."""

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
