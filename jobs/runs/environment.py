"""The environment of a run: facts for the comparison of two runs."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from jobs.cluster.admin import AdminError, TopicSize
from jobs.cluster.opening import OpenCluster
from jobs.cluster.sources import changed_properties
from jobs.cluster.topic_plan import Assignment
from jobs.cluster.topic_set import REFUSED_ASSIGNMENTS
from jobs.config import Configuration
from jobs.config.metrics_registry import ExtensionSection
from jobs.setup.places import child_environment
from jobs.setup.releases import installed_version
from jobs.setup.version import __version__
from metrics.common.extensions import CLIENTS, SOURCES, version_of
from metrics.sources.beans import Role
from metrics.sources.source import NodeInfo
from metrics.tables.rows import SERIES, merge_facts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = (
    "confluent-kafka",
    "crc32c",
    "delta-spark",
    "jmxquery",
    "kafka-python",
    "numpy",
    "pyarrow",
    "pyspark",
)
PROBE_TOPIC = "kafka-redline-environment"
"""Name of the topic in validation requests; this topic is never created."""
_GIT_PATIENCE_S = 5.0


def environment_of(
    spark: SparkSession, nodes: Mapping[int, NodeInfo], opened: OpenCluster, config: Configuration
) -> dict[str, str]:
    """Name of a fact → its text, for the facts of a run: versions, properties, cores and memory.
    The facts contain no secrets.

    A fact that the client may not read has the text `unreadable`, and the run continues.

    Args:
        spark: the Spark session.
        nodes: node id → facts of a broker or controller.
        opened: the open cluster.
        config: the configuration of the run; its topic options determine the topic's properties in
            the result.
    """
    return {
        **_of_redline(),
        "spark.version": spark.version,
        "spark.master": spark.conf.get("spark.master", "") or "",
        **facts_of_nodes(nodes),
        **_of_cluster(opened, config),
        **opened.environment,
        **packages_of_extensions(config),
    }


def _of_redline() -> dict[str, str]:
    found = {
        "redline.version": __version__,
        "python.version": platform.python_version(),
        "driver.platform": platform.platform(),
        "driver.cores": str(os.cpu_count()),
        "driver.memory_bytes": str(psutil.virtual_memory().total),
    }
    commit = commit_of(Path(__file__).resolve().parents[1])
    if commit is not None:
        found["redline.commit"] = commit
    installed = {package: installed_version(package) for package in PACKAGES}
    return {**found, **{f"package.{name}": text for name, text in installed.items() if text}}


def packages_of_extensions(config: Configuration) -> dict[str, str]:
    """The versions of installed packages whose clients or metrics source the run uses."""
    names = [
        (CLIENTS, name)
        for part in config.workload.parts
        for name in (part.producer.client, part.consumers.client)
    ]
    names += [
        (SOURCES, section.source)
        for section in config.cluster.sources
        if isinstance(section, ExtensionSection)
    ]
    found = dict(filter(None, (version_of(group, name) for group, name in names)))
    return {f"package.{name}": version for name, version in found.items()}


def commit_of(folder: Path) -> str | None:
    """The commit of the Git checkout in a folder, with `+changes` if files differ from the commit;
    None if the folder is not a checkout.
    """
    if not (folder / ".git").exists():
        return None
    try:
        commit = _git(folder, "rev-parse", "--short=12", "HEAD")
        changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None  # Git is missing, or does not trust this folder
    return f"{commit}+changes" if changes else commit


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=_GIT_PATIENCE_S,
    )
    return done.stdout.strip()


def facts_of_nodes(nodes: Mapping[int, NodeInfo]) -> dict[str, str]:
    """The facts of brokers and controllers, including the names of the series that the metrics
    source reads.
    """
    facts_of = {node_id: {"version": node.version, **node.facts} for node_id, node in nodes.items()}
    brokers = {i: facts for i, facts in facts_of.items() if Role.BROKER in nodes[i].roles}
    controllers = {i: facts for i, facts in facts_of.items() if i not in brokers}
    series = {node_id: node.series for node_id, node in nodes.items() if node.series}
    return {
        **merge_facts("broker", brokers),
        **merge_facts("controller", controllers),
        **merge_facts(SERIES, series),
    }


def _of_cluster(opened: OpenCluster, config: Configuration) -> dict[str, str]:
    admin, topic, ids = opened.admin, config.workload.topic, opened.info.broker_ids
    replicas = {0: ids[: topic.replication_factor]}

    def of_brokers() -> dict[str, str]:
        prefixed = {
            i: {f"config.{name}": value for name, value in changed_properties(admin, i).items()}
            for i in ids
        }
        return merge_facts("broker", prefixed)

    def probe_topic(placement: Assignment | TopicSize) -> dict[str, str | None]:
        return admin.create_topic(PROBE_TOPIC, placement, topic.properties, validate_only=True)

    def of_topic() -> dict[str, str]:
        would_have: Mapping[str, object]
        try:
            would_have = topic.config if config.cluster.topics else probe_topic(replicas)
        except AdminError as error:
            if error.cause not in REFUSED_ASSIGNMENTS:
                raise
            would_have = probe_topic(TopicSize(len(ids), topic.replication_factor))
        return {f"topic.config.{name}": str(value) for name, value in would_have.items()}

    return {
        "cluster.id": opened.info.cluster_id,
        "cluster.brokers": str(len(ids)),
        **_or_unreadable(
            "cluster.metadata.version",
            lambda: {f"cluster.{name}": level for name, level in admin.features().items()},
        ),
        **_or_unreadable("broker.config", of_brokers),
        **_or_unreadable("topic.config", of_topic),
    }


def _or_unreadable(name: str, read: Callable[[], dict[str, str]]) -> dict[str, str]:
    try:
        return read()
    except AdminError as error:
        return {name: f"unreadable ({error.cause})"}
