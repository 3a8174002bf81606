"""Clusters, workloads and goals: read and checked once, at the edge, into frozen objects."""

from jobs.config.cluster import Cluster, Testbed
from jobs.config.cluster_metrics import Jmx, Metrics, Prometheus
from jobs.config.goal import Goal, Indicators, Search, Validity
from jobs.config.loading import (
    Configuration,
    available,
    describe,
    load,
    load_cluster,
    load_goal,
    load_workload,
)
from jobs.config.payload import Payload
from jobs.config.producer import Producer
from jobs.config.security import Security
from jobs.config.workload import Topic, Trial, Workload

__all__ = [
    "Cluster",
    "Configuration",
    "Goal",
    "Indicators",
    "Jmx",
    "Metrics",
    "Payload",
    "Producer",
    "Prometheus",
    "Search",
    "Security",
    "Testbed",
    "Topic",
    "Trial",
    "Validity",
    "Workload",
    "available",
    "describe",
    "load",
    "load_cluster",
    "load_goal",
    "load_workload",
]
