"""The folders, files and ports of testbeds.

`CACHE/testbed/ID/` has the files of one running or crashed testbed: state.json, supervisor.log, and
one folder for each node. The folder of a node (such as broker-1) has server.properties, data/,
server.log and console.log. A Spark worker's work/ has the logs of its executors.
`CACHE/testbed/failed/ID/` has the files of a failed testbed, without data. `CACHE/testbed/classes/`
has the shared class archives of the JVMs.
"""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path

from jobs.setup.places import archive_path, cache_dir
from jobs.testbed.model import HOST, LineNode, Member, State, TestbedStartError
from metrics.columns import restored

STATE_FILE = "state.json"
SUPERVISOR_LOG = "supervisor.log"
FAILED = "failed"
CLASSES = "classes"
FAILED_KEPT = 5
"""Number of failed testbeds whose logs are kept; older logs are deleted."""


class NodeFiles:
    """The files of one node; a Spark node has no properties and only a console log."""

    def __init__(self, node: Member) -> None:
        self.folder = Path(node.directory)
        self.properties = self.folder / "server.properties"
        self.data = self.folder / "data"
        self.work = self.folder / "work"
        self.log = self.folder / "server.log"
        self.console = self.folder / "console.log"
        self.format_log = self.folder / "format.log"
        self.format_arguments = self.folder / "format.arguments"


def line_counts(line: LineNode) -> Path:
    """The file with the packet counts of a link's delay line."""
    return Path(line.directory) / "counts.json"


def log_dirs(data: Path, count: int) -> tuple[Path, ...]:
    """A broker's log directories: the data folder, or `count` folders in the data folder."""
    return (data,) if count == 1 else tuple(data / f"{n}" for n in range(1, count + 1))


def written_dirs(members: Iterable[Member]) -> list[Path]:
    """The folders with the data that nodes write while they run, without the nodes' logs."""
    files = map(NodeFiles, members)
    return [folder for each in files for folder in (each.data, each.work)]


def default_root() -> Path:
    """The folder of all testbeds of this checkout or user."""
    return cache_dir() / "testbed"


def testbed_dirs(root: Path) -> list[Path]:
    """The folders of running and crashed testbeds, sorted by name."""
    if not root.is_dir():
        return []
    own = (FAILED, CLASSES)
    return sorted(entry for entry in root.iterdir() if entry.is_dir() and entry.name not in own)


def read_state(folder: Path) -> State | None:
    """The state in a testbed's folder; None if the state is missing or cannot be read."""
    try:
        return restored(State, json.loads((folder / STATE_FILE).read_text(encoding="utf-8")))
    except (OSError, AttributeError, TypeError, ValueError):
        # The file was deleted, or truncated by a crash of the machine.
        return None


def readable_states(root: Path) -> list[tuple[Path, State]]:
    """Folder and state of each running or crashed testbed whose state can be read."""
    found = ((folder, read_state(folder)) for folder in testbed_dirs(root))
    return [(folder, state) for folder, state in found if state is not None]


def node_pids(folder: Path) -> dict[int, int]:
    """Node id → process id of the running nodes, including the controller."""
    state = read_state(folder)
    records = state.processes if state else ()
    return {each.node_id: each.pid for each in records if each.node_id is not None}


def write_state(folder: Path, state: State) -> None:
    """Replace the state file atomically, so that a reader reads either the old or the new state."""
    draft = folder / f"{STATE_FILE}.new"
    draft.write_text(json.dumps(asdict(state), indent=1), encoding="utf-8")
    draft.replace(folder / STATE_FILE)


def disk_bytes(folders: Sequence[Path]) -> int:
    """The disk space that all files below these folders use [B].

    The size is the sum of allocated blocks, because Kafka's sparse index files are longer.
    """
    total = 0
    for folder in folders:
        for path, _, names in os.walk(folder):
            for name in names:
                with suppress(FileNotFoundError):  # the broker has deleted it
                    total += os.lstat(os.path.join(path, name)).st_blocks * 512  # noqa: PTH118
    return total


def class_archive(kafka_version: str, java: str, jars: Sequence[str]) -> Path:
    """The path of the shared class archive of this Kafka and Java, even if it does not exist."""
    return archive_path(default_root() / CLASSES, f"kafka-{kafka_version}", java, jars)


# Below the range of ephemeral ports of Linux and macOS, so that no client takes a port between this
# check and the broker's bind. If another server takes a port, the bind fails, and the supervisor
# starts again with other ports.
FIRST_PORT = 20_000
LAST_PORT = 31_999
_TRIES_PER_PORT = 200

PortAllocator = Callable[[int], list[int]]


def free_ports(
    count: int, rng: random.Random | None = None, between: tuple[int, int] = (FIRST_PORT, LAST_PORT)
) -> list[int]:
    """Distinct ports of `HOST` without a listener.

    Args:
        count: number of ports.
        rng: random numbers for the candidates. By default, the numbers come from the operating
            system, so that testbeds that start at the same time choose different ports.
        between: the first and the last candidate.

    Raises:
        TestbedStartError: too few ports are free.
    """
    rng = rng or random.SystemRandom()
    ports: list[int] = []
    with ExitStack() as held:
        for _ in range(count * _TRIES_PER_PORT):
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            port = rng.randint(*between)
            try:
                # The port stays bound until all are found, so that no port is chosen twice.
                probe.bind((HOST, port))
            except OSError:  # the port is in use
                probe.close()
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    raise TestbedStartError(
        f"{len(ports)} ports are free on {HOST} between {between[0]} and {between[1]}; expected "
        f"{count}; stop other servers, or testbeds that `redline testbed status` lists"
    )


def accepts(port: int, timeout_s: float, host: str = HOST) -> bool:
    """Whether a process accepts connections at this port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(timeout_s)
        return probe.connect_ex((host, port)) == 0
