"""YARN and HDFS on this machine: Hadoop's own daemons, from its jars on Maven."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import psutil

from jobs.setup.ivy import Coordinate, retrieve
from jobs.setup.jars import JarSet
from jobs.setup.places import cache_dir
from jobs.setup.preflight import java_command
from jobs.testbed.places import free_ports
from tests.support.commands import await_ends
from tests.support.processes import becomes, processes_in

HOST = "127.0.0.1"
FULL_QUEUE = "small"
"""A queue that has no room even for the master of an application."""
VERSION = "3.4.2"
WANTED = (
    Coordinate("org.apache.hadoop", "hadoop-client-minicluster", VERSION),
    # The daemons use these; the shaded jars leave them out.
    Coordinate("org.slf4j", "slf4j-reload4j", "1.7.36"),
    Coordinate("org.bouncycastle", "bcpkix-jdk18on", "1.78.1"),
    Coordinate("org.glassfish.jaxb", "jaxb-runtime", "2.3.9"),
)
START_S = 240.0
"""Deadline until all daemons answer, on two busy cores [s]."""
NODE_MB = 6_144
_YARN = "org.apache.hadoop.yarn.server"
_HDFS = "org.apache.hadoop.hdfs.server"
_LOG = """
log4j.rootLogger=WARN,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %c: %m%n
"""


@dataclass(frozen=True)
class Hadoop:
    """A ResourceManager, two NodeManagers, a NameNode and a DataNode.

    Attributes:
        conf: folder for `HADOOP_CONF_DIR`.
        file_system: URI of HDFS.
        folder: everything that they write.
    """

    conf: Path
    file_system: str
    web: str
    folder: Path

    def read(self, path: str) -> Any:
        """An answer of the ResourceManager's REST API, such as of `apps`."""
        with urllib.request.urlopen(f"http://{self.web}/ws/v1/cluster/{path}", timeout=30) as page:
            return json.loads(page.read())

    @property
    def live_nodes(self) -> int:
        """NodeManagers that run containers."""
        try:
            return sum(each["state"] == "RUNNING" for each in self.read("nodes")["nodes"])
        except OSError:
            return 0

    def applications(self, state: str) -> list[str]:
        """The ids of the applications in a state, such as `RUNNING`."""
        listed = self.yarn("application", "-list", "-appStates", state)
        return re.findall(r"^application_\S+", listed, re.MULTILINE)

    def final_state(self, app: str) -> tuple[str, ...]:
        """The state and the final status of an application."""
        status = self.yarn("application", "-status", app)
        return tuple(re.findall(r"^\s*(?:Final-)?State : (\S+)", status, re.MULTILINE))

    def executors(self) -> list[psutil.Process]:
        """The JVMs of Spark's executors in containers."""
        return [
            each
            for each in psutil.process_iter(["name", "cmdline", "cwd"])
            if each.info["name"] == "java"
            and "YarnCoarseGrainedExecutorBackend" in " ".join(each.info["cmdline"] or ())
            and str(self.folder) in (each.info["cwd"] or "")
        ]

    def yarn(self, *words: str) -> str:
        """The output of the `yarn` command."""
        cli = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"
        done = subprocess.run(
            [*_java(self.conf), cli, *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        return done.stdout


def _java(conf: Path) -> list[str]:
    jars = JarSet(cache_dir() / "jars", f"hadoop-{VERSION}", repr(WANTED), _download).jars()
    path = os.pathsep.join(map(str, (conf, *jars)))
    opens = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")
    return [java_command(), "-Xmx256m", "-XX:TieredStopAtLevel=1", *opens, "-cp", path]


def _download(target: Path, work: Path) -> None:
    retrieve(WANTED, target, work)


def _write(folder: Path, name: str, settings: Mapping[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = (
        f"<property><name>{key}</name><value>{escape(str(value))}</value></property>"
        for key, value in settings.items()
    )
    (folder / name).write_text(f"<configuration>{''.join(rows)}</configuration>\n")
    (folder / "log4j.properties").write_text(_LOG)


@contextmanager
def hadoop(folder: Path, nodes: int = 2) -> Iterator[Hadoop]:
    """Start the daemons; at the end they and all of their containers are gone."""
    places = (f"{HOST}:{port}" for port in free_ports(10 + 4 * nodes))
    name, web, conf = next(places), next(places), folder / "conf"
    core = {"fs.defaultFS": f"hdfs://{name}", "hadoop.tmp.dir": folder / "tmp"}
    hdfs = {
        "dfs.replication": 1,
        "dfs.namenode.http-address": next(places),
        "dfs.namenode.name.dir": folder / "name",
        **{
            f"dfs.datanode.{kind}": next(places)
            for kind in ("address", "http.address", "ipc.address")
        },
        "dfs.datanode.data.dir": folder / "data",
    }
    kinds = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
    yarn = {
        "yarn.resourcemanager.hostname": HOST,
        "yarn.resourcemanager.webapp.address": web,
        **{f"yarn.resourcemanager.{kind}": next(places) for kind in kinds},
        "yarn.resourcemanager.scheduler.class": f"{_YARN}.resourcemanager.scheduler.capacity"
        ".CapacityScheduler",
        "yarn.scheduler.minimum-allocation-mb": 256,
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 99.9,
    }
    for file, settings in (("core-site", core), ("hdfs-site", hdfs), ("yarn-site", yarn)):
        _write(conf, f"{file}.xml", settings)
    queue = "yarn.scheduler.capacity.root"
    _write(
        conf,
        "capacity-scheduler.xml",
        {
            f"{queue}.queues": f"default,{FULL_QUEUE}",
            f"{queue}.default.capacity": 98,
            f"{queue}.{FULL_QUEUE}.capacity": 2,
            f"{queue}.{FULL_QUEUE}.maximum-capacity": 2,
            "yarn.scheduler.capacity.maximum-am-resource-percent": 1.0,
        },
    )
    with ExitStack() as stack:

        def begin(kind: str, place: Path) -> None:
            log = stack.enter_context((folder / f"{kind.rpartition('.')[2]}.log").open("a"))
            command = [*_java(place), kind]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)

        stack.callback(_end_containers, folder)
        formatting = [*_java(conf), f"{_HDFS}.namenode.NameNode", "-format", "-force"]
        subprocess.run(formatting, check=True, capture_output=True, timeout=START_S)
        begin(f"{_HDFS}.namenode.NameNode", conf)
        begin(f"{_HDFS}.datanode.DataNode", conf)
        begin(f"{_YARN}.resourcemanager.ResourceManager", conf)
        for node in range(nodes):
            place = folder / f"node-{node}"
            kinds = ("address", "localizer.address", "webapp.address", "collector-service.address")
            _write(place, "core-site.xml", core)
            _write(
                place,
                "yarn-site.xml",
                {
                    **yarn,
                    **{f"yarn.nodemanager.{kind}": next(places) for kind in kinds},
                    "yarn.nodemanager.hostname": HOST,
                    "yarn.nodemanager.local-dirs": place / "local",
                    "yarn.nodemanager.log-dirs": place / "logs",
                    "yarn.nodemanager.resource.memory-mb": NODE_MB,
                    "yarn.nodemanager.resource.cpu-vcores": 8,
                },
            )
            begin(f"{_YARN}.nodemanager.NodeManager", place)
        found = Hadoop(conf, f"hdfs://{name}", web, folder)
        assert becomes(lambda: found.live_nodes == nodes, START_S), folder
        yield found


def _end_containers(folder: Path) -> None:
    """End what containers left: their processes work in folders of their NodeManager."""
    left = processes_in(folder)
    for each in left:
        each.kill()
    assert await_ends(left, 30.0) == []
