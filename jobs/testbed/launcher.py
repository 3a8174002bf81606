"""Starts a testbed from the calling process.

The module also writes the testbed's cluster file, with which other commands use the testbed. For a
run on the testbed's Spark cluster, the module makes the spark-submit command.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jobs
from jobs.config.yaml_file import yaml_text
from jobs.setup.jars import java_jar, kafka_jars
from jobs.setup.preflight import java_command
from jobs.testbed.channel import channel_pair
from jobs.testbed.cleanup import own_record, root_lock, sweep
from jobs.testbed.cpu_groups import cpu_groups
from jobs.testbed.handle import Testbed
from jobs.testbed.handler_time import NAME, SOURCE
from jobs.testbed.known_properties import require_known, without_newer
from jobs.testbed.listeners import SCRAM_MECHANISMS, SecurityFiles, security_part
from jobs.testbed.model import (
    HOST,
    Spec,
    State,
    Status,
    TestbedStateError,
    available_cores,
    require_cores,
)
from jobs.testbed.places import (
    SUPERVISOR_LOG,
    class_archive,
    default_root,
    readable_states,
    write_state,
)
from jobs.testbed.planted_devices import require_devices
from jobs.testbed.profile import Profile, adapt, load_profile
from jobs.testbed.spark import SPARK_WORKERS_MAX, spark_home, submit_properties
from metrics.common.errors import ConfigError


def cluster_file(folder: Path) -> Path:
    """The path of the cluster file for the testbed in this folder."""
    return folder / "cluster.yaml"


def cluster_text(folder: Path, state: State) -> str:
    """The text of a cluster file for jobs that use this running testbed."""
    spec = state.spec
    files = SecurityFiles(folder)
    jmx: dict[str, object] = {
        "endpoints": {node.node_id: node.jmx_endpoint for node in state.nodes}
    }
    if spec.jmx_secured:
        jmx |= {**files.login, "tls": True, "cafile": str(files.ca)}
    cluster: dict[str, object] = {
        "description": f"brokers of {spec.title}",
        "bootstrap_servers": list(state.bootstrap_servers),
        "jmx": jmx,
    }
    if spec.security:
        cluster["security"] = security_part(files, spec.security[0], SCRAM_MECHANISMS[-1])
    if spec.produce_handler_ms:
        cluster["planted_handler_ms"] = spec.produce_handler_ms
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


READY_DEADLINE_S = 120.0
_GRACE_S = 10.0


def start(  # noqa: PLR0913 - callers name all but the first
    profile: str | Profile = "disk-bound",
    *,
    brokers: int | None = None,
    kafka_version: str | None = None,
    overrides: Mapping[str, object] | None = None,
    name: str = "default",
    spark_workers: int = 0,
    owned: bool = True,
    jars: Sequence[Path] | None = None,
    root: Path | None = None,
    node_jvm_options: Mapping[int, Sequence[str]] | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> Testbed:
    """Start a testbed, and return once every broker is ready.

    Args:
        profile: a `Profile`, the name of a file in conf/testbed without .yaml, or the path of a
            file.
        brokers: number of brokers, 1 to 5; by default the profile's number.
        kafka_version: release of Kafka; by default the profile's release.
        overrides: key → value. A key is Kafka's name of a broker property, or a key of the profile
            such as `heap_mb` or `security`.
        name: name of the testbed; several owned testbeds may have the same name.
        spark_workers: number of workers of a standalone Spark cluster; 0 for no Spark cluster.
        owned: whether the testbed ends with this process, even if the process is killed.
        jars: class path of Kafka; by default the jars of `kafka_version`, downloaded once.
        root: folder of all testbeds; a folder of the cache by default.
        node_jvm_options: node id → additional options of the node's JVM, such as a -javaagent.
        meanwhile: called while the brokers start; if it raises an error, the brokers are stopped.

    Raises:
        ConfigError: the profile, the version or a value is wrong.
        TestbedStartError: the brokers do not become ready; the message has the errors in the logs.
    """
    if not isinstance(profile, Profile):
        profile = load_profile(profile)
    profile = adapt(profile, brokers=brokers, kafka_version=kafka_version, overrides=overrides)
    version = profile.kafka_version
    if jars is None:
        jars = kafka_jars(profile.kafka_version)
        require_known([each for each in overrides or () if each in profile.broker], version)
        known = {
            key: without_newer(getattr(profile, key), version) for key in ("broker", "controller")
        }
        profile = profile.model_copy(update=known)
    spec = make_spec(
        profile,
        name,
        jars,
        owned=owned,
        spark_workers=spark_workers,
        node_jvm_options=node_jvm_options,
    )
    return launch(spec, root or default_root(), meanwhile)


def launch(spec: Spec, root: Path, meanwhile: Callable[[], object] = lambda: None) -> Testbed:
    """Start the testbed that the spec describes; see `start`."""
    testbed = _spawn(spec, root)
    try:
        meanwhile()
        testbed.await_ready(spec.ready_deadline_s + _GRACE_S)
        described = cluster_text(testbed.folder, testbed.state)
        try:
            cluster_file(testbed.folder).write_text(described, encoding="utf-8")
        except FileNotFoundError:
            testbed.raise_end()
        if not spec.owned:
            testbed.detach()
    except BaseException:
        testbed.abandon()
        raise
    return testbed


def make_spec(
    profile: Profile,
    name: str,
    jars: Sequence[Path],
    *,
    owned: bool = True,
    node_jvm_options: Mapping[int, Sequence[str]] | None = None,
    spark_workers: int = 0,
) -> Spec:
    """The complete specification for a supervisor.

    Args:
        profile, name, jars, owned, spark_workers: see `start`.
        node_jvm_options: node id → additional options of its JVM, such as a -javaagent.

    Raises:
        ConfigError: the name is not a valid name of a folder, or this machine lacks a requirement
            of the testbed, such as Java or enough cores.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,40}", name):
        raise ConfigError(
            f'"{name}" is not a valid name of a testbed; expected at most 41 letters, digits, '
            "dots, dashes and underscores, beginning with a letter or digit; choose another name"
        )
    if not 0 <= spark_workers <= SPARK_WORKERS_MAX:
        raise ConfigError(
            f"spark_workers is {spark_workers}; expected 0 to {SPARK_WORKERS_MAX}; correct it"
        )
    require_possible(profile)
    java = java_command()
    paths = _class_path(profile, jars)
    keys = dict(profile)
    return Spec(
        id=f"{name}-{secrets.token_hex(4)}",
        name=name,
        profile=keys.pop("name"),
        broker_properties=keys.pop("broker"),
        controller_properties=keys.pop("controller"),
        java=java,
        jars=paths,
        class_archive=str(class_archive(profile.kafka_version, java, paths)),
        ready_deadline_s=READY_DEADLINE_S,
        owned=owned,
        node_jvm_options={node: tuple(each) for node, each in (node_jvm_options or {}).items()},
        spark_workers=spark_workers,
        spark_home=spark_home() if spark_workers else "",
        broker_jars={
            node: _class_path(profile, kafka_jars(release))
            for node, release in profile.kafka_versions.items()
        },
        **keys | {"metadata": profile.keeps_metadata_in, "produce_handler_ms": profile.handler_ms},
    )


def require_possible(profile: Profile) -> None:
    """Refuse a profile if this machine cannot start its brokers.

    Raises:
        ConfigError: the machine has too few cores, or cannot create the link or the disks.
    """
    require_cores(profile.cpus, available_cores(), cpu_groups() is not None)
    require_devices(profile.link, profile.disk)


def _class_path(profile: Profile, jars: Sequence[Path]) -> tuple[str, ...]:
    """The paths of Kafka's jars, and of the project's jar if handler times are configured."""
    own = [java_jar(NAME, SOURCE, jars)] if profile.handler_ms else []
    return tuple(str(jar) for jar in [*jars, *own])


def _spawn(spec: Spec, root: Path) -> Testbed:
    """Create the testbed's folder, and start the supervisor."""
    root = root.absolute()
    with root_lock(root):
        sweep(root)
        if not spec.owned:
            refuse_namesake(root, spec.name)
        folder = root / spec.id
        folder.mkdir(mode=0o700)
        state = State(spec, Status.STARTING, created_s=time.time(), owner=own_record())
        write_state(folder, state)
    own = str(Path(jobs.__file__).resolve().parent.parent)
    import_path = [own, *(entry for entry in sys.path if entry and entry != own)]
    channel, inherited = channel_pair()
    with inherited, (folder / SUPERVISOR_LOG).open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "jobs.testbed.supervisor"),
                *(str(folder), str(inherited.fileno())),  # the folder ends with the testbed's id
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(import_path)},
            pass_fds=(inherited.fileno(),),
            start_new_session=True,
        )
    return Testbed(folder, state, channel, process)


def refuse_namesake(root: Path, name: str) -> None:
    """Refuse a second detached testbed with this name; the caller must hold `root_lock`."""
    for _, state in readable_states(root):
        if state.spec.name == name and not state.spec.owned:
            raise TestbedStateError(
                f'testbed "{name}" runs already at {",".join(state.bootstrap_servers)}; expected a '
                f"new name; choose another with --name, or stop the testbed with "
                f"`redline testbed down --name {name}`"
            )
