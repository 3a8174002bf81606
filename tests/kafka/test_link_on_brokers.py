"""A real broker behind a simulated link: its load comes from the other end, and its end leaves no
process and no network.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.cluster.opening import open_cluster
from jobs.config import load
from jobs.config.link import Link
from jobs.console.events import RecordingReporter
from jobs.runs.context_factory import RunOrder
from jobs.runs.fixed_load import FixedLoad, FixedLoadRun
from jobs.runs.lifecycle import execute
from jobs.testbed.commands import link_lines
from jobs.testbed.delay_line import read_counts, round_trip_s
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from jobs.testbed.model import LINE_ID, TestbedLostError
from jobs.testbed.places import line_counts
from jobs.testbed.planted_devices import DEVICE, device_name, link_problem
from metrics.tables.store import TableStore
from tests.support.processes import becomes, processes_with, supervisor_pid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINK = "delay=25ms,jitter=2ms,rate=40MB/s,brokers_tcp_rmem_max=8388608"
LACKING = link_problem(Link(rate="40MB/s"))
GONE_S = 60.0

pytestmark = [pytest.mark.skipif(LACKING is not None, reason=LACKING or "")]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("linked")


@contextmanager
def linked(root: Path) -> Iterator[Testbed]:
    testbed = start(brokers=1, overrides={"link": LINK}, root=root)
    try:
        yield testbed
    finally:
        testbed.stop()


def processes_in(namespace: int) -> list[str]:
    """Ids of the processes in the network namespace with this inode."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "ns" / "net").stat().st_ino == namespace:
                found.append(process.name)
        except OSError:  # it has ended
            continue
    return found


def in_namespace_of(pid: int, *command: str) -> str:
    """The output of a command of iproute2 in the network namespace of a process."""
    done = subprocess.run(
        ["nsenter", f"--net=/proc/{pid}/ns/net", *command],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.long
@pytest.mark.usefixtures("empty_tables")
def test_a_run_loads_the_broker_from_the_other_end(tmp_path: Path, spark: SparkSession) -> None:
    config = load(
        "testbed",
        "demo",
        "default",
        [
            "cluster.testbed.brokers=1",
            f"cluster.testbed.properties.link={LINK}",
            "cluster.warm_up_max_s=0",
            "workload.message_bytes=[1000]",
            "workload.topic.replication_factor=1",
            "workload.producer.rate_bytes_per_s=250000",
            "workload.consumers.groups=1",
            "workload.trial.warmup_s=2",
            "workload.trial.measure_s=4",
        ],
    )
    with ExitStack() as stack:
        opened = open_cluster(config.cluster, RecordingReporter(), stack)
        testbed = opened.broker_control
        assert isinstance(testbed, Testbed)
        check_link(testbed)
        before = read_counts(line_counts_of(testbed))
        order = RunOrder(tmp_path, reporter=RecordingReporter(), run_id="far")
        run = FixedLoadRun(config.in_full, FixedLoad(1_000, 4))
        assert execute(run, order, opened) == 0

        tables = TableStore(spark, str(tmp_path / "tables"))
        (row,) = tables.trials("far").collect()
        assert row.acked_total > 4 * 250 * 4
        assert row.latency_p50_ms > 46, "a record takes at least a round trip"
        for row_of_run in tables.read("runs").collect():
            assert row_of_run.environment["link.delay"] == "25ms"
            assert row_of_run.environment["link.rate"] == "40MB/s"

        # Records cross the link to the broker, and back to the consumers.
        payload = int(row.acked_total) * 1_000

        def crossed() -> bool:
            after = read_counts(line_counts_of(testbed))
            return all(after[way].bytes - before[way].bytes > payload for way in after)

        assert becomes(crossed, 5.0)
        # Each end has its own network, and the counters of both agree.
        (trial,) = run.trials
        assert len(trial.evidence.hosts) == 2
        for host in trial.evidence.hosts:
            (link,) = [each for each in host.interfaces if each.device == DEVICE]
            assert link.speed_bytes_per_s == 40e6
            assert min(link.sent_bytes_per_s or 0, link.received_bytes_per_s or 0) > 0.8e6
    assert not Path("/sys/class/net", device_name(testbed.state.spec.id)).exists()


def check_link(testbed: Testbed) -> None:
    """Check that the link has its settings, and that only the load crosses it."""
    broker, pids = testbed.brokers[1], testbed.pids
    assert round_trip_s(testbed.network_namespace, broker.host, broker.port) > 0.046
    route = in_namespace_of(os.getpid(), "ip", "route", "get", broker.host)
    assert device_name(testbed.state.spec.id) in route, "control and metrics do not cross the link"
    (shown,) = [line for line in link_lines(testbed.state) if "round trip takes" in line]
    assert "25ms one way, jitter 2ms, 40MB/s each way" in shown
    shaped = in_namespace_of(pids[LINE_ID], "tc", "-s", "qdisc", "show", "dev", DEVICE)
    assert "qdisc tbf" in shaped and "rate 320Mbit" in shaped
    maximum = in_namespace_of(pids[1], "cat", "/proc/sys/net/ipv4/tcp_rmem").split()[2]
    here = Path("/proc/sys/net/ipv4/tcp_rmem").read_text(encoding="ascii").split()[2]
    assert maximum == "8388608" != here
    assert DEVICE in Path(f"/proc/{pids[1]}/net/dev").read_text(encoding="ascii")
    assert DEVICE not in Path("/proc/net/dev").read_text(encoding="ascii")


def line_counts_of(testbed: Testbed) -> Path:
    line = testbed.state.line
    assert line is not None
    return line_counts(line)


@pytest.mark.long
@pytest.mark.together
def test_a_kill_of_the_supervisor_leaves_no_process_and_no_network(root: Path) -> None:
    with linked(root) as testbed:
        name = device_name(testbed.state.spec.id)
        pids = [testbed.pids[node] for node in (1, LINE_ID)]
        ends = [Path(f"/proc/{pid}/ns/net").stat().st_ino for pid in pids]
        assert [bool(processes_in(end)) for end in ends] == [True, True]
        assert Path("/sys/class/net", name).exists()
        os.kill(supervisor_pid(testbed), signal.SIGKILL)
        assert becomes(lambda: not processes_with(testbed.state.spec.id), GONE_S)
        assert becomes(lambda: not any(map(processes_in, ends)), GONE_S)
        # The kernel removes a device when the namespace of its other end ends.
        assert becomes(lambda: not Path("/sys/class/net", name).exists(), GONE_S)
    assert not testbed.folder.exists()


def lost(testbed: Testbed) -> bool:
    """True if the testbed has ended unexpectedly; raises the cause."""
    testbed.check()
    return False


@pytest.mark.long
@pytest.mark.together
def test_the_end_of_a_line_process_ends_the_testbed(root: Path) -> None:
    with linked(root) as testbed:
        os.kill(testbed.pids[LINE_ID], signal.SIGKILL)
        with pytest.raises(TestbedLostError, match="the delay line of the link was ended by SIGK"):
            becomes(partial(lost, testbed), GONE_S)
    assert not Path("/sys/class/net", device_name(testbed.state.spec.id)).exists()
