"""The environment of a run: what one has to know to compare it with another."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import psutil

from jobs.version import __version__
from metrics.sources.source import NodeInfo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("pyspark", "delta-spark", "kafka-python", "crc32c", "jmxquery")


def environment_of(spark: SparkSession, nodes: Mapping[int, NodeInfo]) -> dict[str, str]:
    """Versions, cores and memory as names and texts.

    Args:
        nodes: what the brokers and controllers said about themselves, by node id.
    """
    found = {
        "redline": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "driver_cores": str(os.cpu_count()),
        "driver_memory_bytes": str(psutil.virtual_memory().total),
        "spark": spark.version,
        "spark_master": spark.conf.get("spark.master", "") or "",
        "kafka": ", ".join(sorted({node.version for node in nodes.values()})),
    }
    for node_id, node in sorted(nodes.items()):
        roles = "+".join(sorted(role.value for role in node.roles))
        found[f"kafka_node_{node_id}"] = f"{node.version} {roles}"
    for package in PACKAGES:
        found[f"package_{package}"] = _version_of(package)
    return found


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
