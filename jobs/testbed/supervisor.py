"""The supervisor process of a testbed: `python -m jobs.testbed.supervisor FOLDER FD`.

Only the supervisor starts and ends the testbed's processes. The supervisor runs in a separate
session, so that Ctrl-C at the terminal does not reach it. The supervisor detects the end of its
owner through a channel. If the supervisor is killed, the kernel (on Linux) ends the JVMs. The files
are deleted when the next testbed starts, or by `redline testbed down`.
"""

from __future__ import annotations

import logging
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from jobs.testbed.channel import ChannelClosedError, Inbox, Message, MessageChannel
from jobs.testbed.cleanup import keep_logs, own_record
from jobs.testbed.model import Member, NodeRole, State, Status
from jobs.testbed.nodes import Nodes
from jobs.testbed.places import FAILED, PortAllocator, accepts, free_ports, read_state, write_state
from jobs.testbed.planted_devices import DeviceError
from jobs.testbed.processes import NodeProcess, error_lines, says_address_in_use

POLL_S = 0.1
SPARK_STOP_S = 5.0
LINE_STOP_S = 5.0
ARCHIVE_STOP_S = 60.0
"""Longest time for a controller to write the class archive at its end [s]."""


DISK_RESERVE_BYTES = 500_000_000
"""Minimum free space of the file system [B]. The testbed stops if the file system has less free
space than this value.
"""


class StopRequestedError(Exception):
    """The owner or a signal requested the end of the testbed; the testbed did not fail.

    Attributes:
        is_hasty: True if the brokers are killed at once.
        reason: the error with which the testbed's owner stopped; empty without an error. If there
            is an error, the logs are kept.
    """

    def __init__(self, *, is_hasty: bool = False, reason: str = "") -> None:
        super().__init__()
        self.is_hasty = is_hasty
        self.reason = reason


class TestbedFailedError(Exception):
    """The testbed failed; `kind` is a key for `jobs.testbed.model.error_of_kind`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class NodeEndedError(Exception):
    """A process of the testbed ended unexpectedly."""

    def __init__(self, process: NodeProcess) -> None:
        super().__init__()
        self.process = process


def describe_end(process: NodeProcess, what: str | None = None) -> str:
    """Describe how a process ended, with the error lines of its logs.

    Args:
        process: the ended process.
        what: name of the process in messages; the node's title by default.
    """
    code = process.exit_code()
    how = (
        f"was ended by {signal.Signals(-code).name}" if code and code < 0 else f"exited with {code}"
    )
    said = ", ".join(f'"{line}"' for line in error_lines(process.node))
    return f"{what or process.node.title} {how} and logged {said or 'no error'}"


def disk_problem(
    folder: Path,
    used_bytes: int,
    limit_bytes: int,
    free_bytes_of: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
) -> str | None:
    """The reason why the testbed must stop writing; None if there is none.

    Args:
        folder: a folder on the file system that the testbed writes to.
        used_bytes: size of the log directories [B].
        limit_bytes: largest size of the log directories [B].
        free_bytes_of: folder → free space of the folder's file system [B].
    """
    if used_bytes > limit_bytes:
        return (
            f"its log directories have {used_bytes / 1e9:.2f} GB; expected at most "
            f"disk_limit_bytes, {limit_bytes / 1e9:.2f} GB; lower log.retention.bytes, use fewer "
            "partitions, or raise disk_limit_bytes"
        )
    free_bytes = free_bytes_of(folder)
    if free_bytes < DISK_RESERVE_BYTES:
        return (
            f"the disk of {folder} has {free_bytes / 1e9:.2f} GB free; expected at least "
            f"{DISK_RESERVE_BYTES / 1e9:.1f} GB; delete files, or name a folder on another disk in "
            "REDLINE_CACHE"
        )
    return None


log = logging.getLogger("jobs.testbed.supervisor")

DISK_CHECK_S = 2.0
NODE_STOP_S = 30.0
PORT_ATTEMPTS = 3
_ENDING_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


class Supervisor:
    """Starts, monitors and stops a testbed, on one thread that events wake."""

    def __init__(
        self,
        folder: Path,
        state: State,
        channel: MessageChannel,
        inbox: Inbox,
        allocate: PortAllocator = free_ports,
    ) -> None:
        self._folder = folder
        self._state = state
        self._channel = channel
        self._inbox = inbox
        self._allocate = allocate
        self._nodes = Nodes(state.spec, folder)

    def run(self) -> None:
        """Create the testbed, and supervise it until all of its processes have ended."""
        try:
            self._save(supervisor=own_record())
            self._bring_up()
            self._save(status=Status.READY)
            self._send({"event": "ready"})
            self._watch()
        except StopRequestedError as ending:
            if ending.reason:
                self._fail("lost", ending.reason, is_hasty=ending.is_hasty)
            else:
                self._end(is_hasty=ending.is_hasty)
        except NodeEndedError as lost:
            self._fail("lost", describe_end(lost.process))
        except DeviceError as error:
            self._fail("start", str(error))
        except TestbedFailedError as failure:
            self._fail(failure.kind, str(failure))
        except Exception as error:  # no error may leave a JVM running
            log.exception("unexpected")
            self._fail("unexpected", f"the supervisor failed with {type(error).__name__}: {error}")
            raise
        finally:
            self._nodes.kill_all()
            self._nodes.close_link()

    def _bring_up(self) -> None:
        deadline_s = time.monotonic() + self._state.spec.ready_deadline_s
        self._nodes.make_link()
        self._nodes.make_security()
        for attempt in range(1, PORT_ATTEMPTS + 1):
            self._nodes.lay_out(self._allocate)
            self._nodes.plant_disks()
            self._save(nodes=self._nodes.nodes, spark=self._nodes.spark, line=self._nodes.line)
            try:
                self._format(deadline_s)
                for members in self._nodes.start_phases:
                    self._start_all(members, deadline_s)
            except NodeEndedError as ended:
                if not says_address_in_use(ended.process.node):
                    raise self._failed_start(ended.process) from None
                log.warning("attempt %d: a port of %s is taken", attempt, ended.process.node)
                self._nodes.kill_all()
                self._nodes.processes.clear()
            else:
                return
        raise TestbedFailedError(
            "start",
            f"in each of {PORT_ATTEMPTS} attempts another process took a port of the testbed; "
            "expected free ports; stop other servers on this machine, and try again",
        )

    def _start_all(self, members: Sequence[Member], deadline_s: float) -> None:
        for member in members:
            self._nodes.start(member)
        self._save(processes=self._nodes.records())
        if members:
            self._await_ready(deadline_s)

    def _format(self, deadline_s: float) -> None:
        process = self._nodes.start_format()
        if process is None:
            return
        try:
            while process.exit_code() is None:
                self._check_deadline(deadline_s, "the controller's log directory is not formatted")
                self._tick(POLL_S)
        finally:
            process.kill()
        if process.exit_code() != 0:
            raise self._failed_start(process, "the formatting of its log directory")
        self._nodes.share_bootstrap_metadata()

    def _failed_start(self, process: NodeProcess, what: str | None = None) -> TestbedFailedError:
        """The error for a process that ended before it was ready; see `describe_end`."""
        profile = self._state.spec.profile
        remedy = (
            f"If this error names a property, correct the property in profile {profile} or in --set"
        )
        return TestbedFailedError("start", f"{describe_end(process, what)}. {remedy}")

    def _await_ready(self, deadline_s: float) -> None:
        while True:
            missing = self._nodes.readiness_problem(accepts)
            if missing is None:
                return
            self._check_deadline(deadline_s, missing)
            self._tick(POLL_S)

    def _check_deadline(self, deadline_s: float, missing: str) -> None:
        if time.monotonic() > deadline_s:
            raise TestbedFailedError(
                "start",
                f"it is not ready after {self._state.spec.ready_deadline_s:.0f} s: {missing}; "
                "stop other programs on this machine, or start fewer brokers",
            )

    def _watch(self) -> None:
        """Monitor the testbed until an event ends it."""
        next_check_s = time.monotonic()
        while True:
            if time.monotonic() >= next_check_s:
                limit_bytes = self._state.spec.disk_limit_bytes
                problem = disk_problem(self._folder, self._nodes.used_bytes(), limit_bytes)
                if problem is not None:
                    raise TestbedFailedError("disk", problem)
                next_check_s = time.monotonic() + DISK_CHECK_S
            self._tick(DISK_CHECK_S)

    def _tick(self, timeout_s: float) -> None:
        """Wait for the next event for at most `timeout_s` [s], and handle it."""
        for message in self._inbox.wait(timeout_s):
            self._execute(message)
        if self._inbox.is_orphaned:
            raise StopRequestedError(is_hasty=True, reason="its owner ended without stopping it")
        if self._inbox.terminations:
            raise StopRequestedError
        ended = self._nodes.unexpected_end()
        if ended is not None:
            raise NodeEndedError(ended)

    def _execute(self, message: Message) -> None:
        order = message["order"]
        if order == "stop":
            raise StopRequestedError(is_hasty=message["is_hasty"], reason=message["reason"])
        if order == "detach":
            self._inbox.is_detached = True
            self._save(owner=None)
        elif order == "signal":
            self._signal(self._nodes.processes[message["node"]], message["signal"])
        elif order == "restart":
            self._restart(self._nodes.processes[message["node"]])
        self._send({"event": "done", "order": order})

    def _signal(self, process: NodeProcess, signum: int) -> None:
        """Send a signal; if the signal ends the process, wait for its end."""
        if signum in _ENDING_SIGNALS:
            process.is_down_on_purpose = True
            process.signal(signum)
            self._await_end([process], NODE_STOP_S)
            self._save(processes=self._nodes.records())
        else:
            process.signal(signum)

    def _restart(self, process: NodeProcess) -> None:
        process.is_down_on_purpose = True
        process.terminate()
        self._await_end([process], NODE_STOP_S)
        self._nodes.start(process.node)
        self._save(processes=self._nodes.records())
        self._await_ready(time.monotonic() + self._state.spec.ready_deadline_s)

    def _await_end(self, processes: Sequence[NodeProcess], deadline_s: float) -> None:
        """Wait until these processes have ended; kill them after the deadline.

        If the owner has ended or a further signal arrives, the processes are killed at once.
        """
        ends_s = time.monotonic() + deadline_s
        seen = self._inbox.terminations
        while any(each.exit_code() is None for each in processes):
            self._inbox.wait(POLL_S)
            is_urgent = self._inbox.is_orphaned or self._inbox.terminations > seen
            if is_urgent or time.monotonic() > ends_s:
                break
        for each in processes:
            each.kill()

    def _stop_all(self) -> None:
        """Stop the processes that need an orderly end, Spark first.

        The caller kills the brokers afterwards, because their data are deleted anyway.
        """
        by_role: dict[NodeRole, list[NodeProcess]] = {role: [] for role in NodeRole}
        for process in self._nodes.processes.values():
            process.is_down_on_purpose = True
            by_role[process.node.role].append(process)
        deadlines_s = {
            NodeRole.SPARK_WORKER: SPARK_STOP_S,
            NodeRole.SPARK_MASTER: SPARK_STOP_S,
            NodeRole.DELAY_LINE: LINE_STOP_S,
        }
        spec = self._state.spec
        if spec.class_archive is not None and not Path(spec.class_archive).exists():
            deadlines_s[NodeRole.CONTROLLER] = ARCHIVE_STOP_S
        for role, deadline_s in deadlines_s.items():
            for process in by_role[role]:
                process.terminate()
            self._await_end(by_role[role], deadline_s)

    def _end(self, *, is_hasty: bool) -> None:
        """Stop all processes, in order unless `is_hasty`, and delete all files."""
        was_ready = self._state.status is Status.READY
        self._save(status=Status.STOPPING)
        if was_ready and not is_hasty:
            self._stop_all()
            self._nodes.keep_class_archive()
        self._nodes.kill_all()
        shutil.rmtree(self._folder)
        self._send({"event": "stopped"})

    def _fail(self, kind: str, reason: str, *, is_hasty: bool = False) -> None:
        """Stop all processes, keep the logs, and report the cause and the folder."""
        if not is_hasty and self._state.status is Status.READY:
            self._stop_all()
        self._nodes.kill_all()
        kept = self._folder.parent / FAILED / self._folder.name
        spec = self._state.spec
        message = f"{spec.title} failed: {reason}. Its logs are in {kept}"
        self._state = replace(self._state, status=Status.FAILED, reason=reason, processes=())
        keep_logs(self._folder, self._state)
        log.error("%s", message)
        self._send({"event": "failed", "kind": kind, "message": message})

    def _save(self, **changes: object) -> None:
        self._state = replace(self._state, **changes)  # type: ignore[arg-type]
        write_state(self._folder, self._state)

    def _send(self, message: Message) -> None:
        try:
            self._channel.send(message)
        except ChannelClosedError:
            # The owner has ended; the state file and the log contain the same message.
            log.info("not delivered: %s", message)


def main(folder: Path, descriptor: int) -> int:
    """Supervise the testbed of this folder until it ends; the folder's state file has the spec."""
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(levelname)s %(message)s")
    channel = MessageChannel(socket.socket(fileno=descriptor))
    state = read_state(folder)
    if state is None:
        log.error("%s has no readable state file", folder)
        channel.close()
        return 2
    Supervisor(folder, state, channel, Inbox(channel)).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
