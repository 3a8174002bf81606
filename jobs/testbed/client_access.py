"""Access to a testbed for other commands: its cluster file and its spark-submit command."""

from __future__ import annotations

import shlex
from pathlib import Path

from jobs.config.source import yaml_text
from jobs.testbed.handler_time import cluster_keys
from jobs.testbed.keys import SecurityFiles
from jobs.testbed.listeners import SCRAM_MECHANISMS, security_part
from jobs.testbed.model import HOST, State
from jobs.testbed.spark import submit_properties


def cluster_file(folder: Path) -> Path:
    """The path of the cluster file that describes the testbed of this folder."""
    return folder / "cluster.yaml"


def cluster_text(folder: Path, state: State) -> str:
    """The text of the cluster file, for jobs that use this testbed instead of starting one."""
    spec = state.spec
    files = SecurityFiles(folder)
    jmx: dict[str, object] = {
        "endpoints": {node.node_id: node.jmx_endpoint for node in state.nodes}
    }
    if spec.jmx_secured:
        login = {
            "username_from": f"file:{files.username}",
            "password_from": f"file:{files.password}",
        }
        jmx |= {**login, "tls": True, "cafile": str(files.ca)}
    cluster: dict[str, object] = {
        "description": f"brokers of {spec.title}",
        "bootstrap_servers": list(state.bootstrap_servers),
        "jmx": jmx,
    }
    if spec.security:
        cluster["security"] = security_part(files, spec.security[0], SCRAM_MECHANISMS[-1])
    cluster |= cluster_keys(spec)
    if spec.disk is not None:
        cluster["disk"] = spec.disk.facts
    if spec.link is not None:
        cluster["network_namespace"] = state.network_namespace
        cluster["link"] = spec.link.facts
    return yaml_text(cluster)


def submit_line(state: State, cluster: Path) -> str:
    """The spark-submit command for a run on this testbed."""
    words = [
        "spark-submit",
        *("--master", state.spark_master or ""),
        *("--properties-file", str(submit_properties(cluster.parent))),
        *("--conf", f"spark.driver.host={HOST}"),
        *("--conf", f"spark.driver.bindAddress={HOST}"),
    ]
    job = f"jobs/find_limit.py --cluster {shlex.quote(str(cluster))} --yes"
    # The shell expands the pattern to the only wheel in dist.
    return f"{shlex.join(words)} --py-files dist/kafka_redline-*.whl {job}"
