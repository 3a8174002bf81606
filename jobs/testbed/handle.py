"""The handle of a running testbed, for the process that started it.

The module also drops log segments from the page cache, so that reads come from the disk.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from jobs.config.cluster import stated_environment
from jobs.config.security import Security
from jobs.testbed.channel import ChannelClosedError, Message, MessageChannel
from jobs.testbed.cleanup import locked_sweep
from jobs.testbed.listeners import USER, SecurityFiles, security_part
from jobs.testbed.model import (
    Node,
    NodeRole,
    State,
    TestbedStartError,
    TestbedStateError,
    error_of_kind,
)
from jobs.testbed.places import SUPERVISOR_LOG, NodeFiles, node_pids, read_state
from jobs.testbed.processes import tail_text
from metrics.common.errors import ConfigError, RedlineError
from metrics.sources.jmx import JmxAccess


def forget(folders: Iterable[Path]) -> int:
    """Drop the pages of all log segments in these folders from the page cache.

    Dirty pages are written first, because only clean pages can be dropped. Memory-mapped pages stay
    in the cache; they belong to the brokers' indexes, which have no records.

    Returns:
        Size of the segments [B].

    Raises:
        ConfigError: the operating system does not support posix_fadvise.
    """
    if not hasattr(os, "posix_fadvise"):
        raise ConfigError(
            f"cold is true, and {sys.platform} cannot drop files from the page cache; "
            "expected Linux; remove cold, or run on Linux"
        )
    forgotten = 0
    for folder in folders:
        for file in folder.rglob("*.log"):
            with suppress(FileNotFoundError), file.open("rb") as segment:  # retention may delete it
                os.fdatasync(segment.fileno())
                os.posix_fadvise(segment.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                forgotten += os.fstat(segment.fileno()).st_size
    return forgotten


# The supervisor has shorter deadlines; these are for a supervisor that hangs.
_ANSWER_DEADLINE_S = 180.0
_STOP_DEADLINE_S = 90.0
_KILL_DEADLINE_S = 10.0


class Testbed:
    """The handle of running brokers; a context manager.

    Only the process that started the brokers may use the handle, from any thread. The exit of the
    context stops the brokers and deletes their data.

    Attributes:
        folder: the folder of the testbed's files while it runs.
        state: the testbed's specification, nodes and processes.
    """

    __test__ = False  # otherwise pytest collects the class, because of its name

    def __init__(
        self, folder: Path, state: State, channel: MessageChannel, process: subprocess.Popen[bytes]
    ) -> None:
        self.folder = folder
        self.state = state
        self._channel = channel
        self._process = process
        self._lock = threading.RLock()
        self._failure: RedlineError | None = None
        self._is_stopped = False

    @property
    def name(self) -> str:
        """The testbed's name."""
        return self.state.spec.name

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        """The addresses of all brokers as host:port."""
        return self.state.bootstrap_servers

    @property
    def brokers(self) -> dict[int, Node]:
        """Broker id → node with ports and folder."""
        return {node.node_id: node for node in self.state.brokers}

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The ids of the brokers, ascending."""
        return tuple(sorted(self.brokers))

    @property
    def jmx_endpoints(self) -> dict[int, str]:
        """Broker id → address of JMX as host:port."""
        return {node.node_id: node.jmx_endpoint for node in self.state.brokers}

    @property
    def all_jmx_endpoints(self) -> dict[int, str]:
        """Node id → address of JMX as host:port, for the brokers and a KRaft controller."""
        kafka = (each for each in self.state.nodes if each.role is not NodeRole.ZOOKEEPER)
        return {node.node_id: node.jmx_endpoint for node in kafka}

    @property
    def link_facts(self) -> dict[str, str]:
        """Key → value of the link between brokers and clients; empty without a link."""
        link = self.state.spec.link
        return {} if link is None else link.facts

    @property
    def environment(self) -> dict[str, str]:
        """The configured handler times, link and disks of these brokers, as facts for a run's
        record.
        """
        spec = self.state.spec
        facts = {} if spec.disk is None else spec.disk.facts
        return stated_environment(spec.produce_handler_ms, self.link_facts, self.broker_ids, facts)

    def client_security(
        self, protocol: str | None = None, mechanism: str = "SCRAM-SHA-512"
    ) -> Security:
        """The security settings of clients; PLAINTEXT if the listeners are plain.

        Args:
            protocol: protocol of the listener; by default the protocol of `bootstrap_servers`.
            mechanism: mechanism of the login, if the protocol has a login: PLAIN, SCRAM-SHA-256,
                SCRAM-SHA-512 or OAUTHBEARER.
        """
        usual = next(iter(self.state.spec.security), "PLAINTEXT")
        files = SecurityFiles(self.folder)
        return Security.model_validate(security_part(files, protocol or usual, mechanism))

    @property
    def jmx_access(self) -> JmxAccess | None:
        """The login and the trusted certificates of JMX; None if JMX has no authentication."""
        if not self.state.spec.jmx_secured:
            return None
        files = SecurityFiles(self.folder)
        password = files.password.read_text(encoding="utf-8")
        return JmxAccess(USER, password, is_tls=True, cafile=str(files.ca))

    @property
    def pids(self) -> dict[int, int]:
        """Node id → process id of the running nodes, including the controller."""
        return node_pids(self.folder)

    @property
    def network_namespace(self) -> str:
        """The file of the clients' network namespace; empty without a link."""
        return self.state.network_namespace

    def check(self) -> None:
        """Raise an error if the testbed has ended unexpectedly since the last check.

        Raises:
            TestbedLostError: a process of the testbed or its supervisor ended.
            TestbedDiskError: the testbed reached its disk limit.
        """
        with self._lock:
            if not self._is_stopped:
                self._receive(timeout_s=0)

    def kill_broker(self, broker_id: int, signum: int = signal.SIGKILL) -> None:
        """Send a signal to a broker.

        If the signal ends the broker (SIGKILL, SIGTERM, SIGINT), the function returns after the
        broker's end. SIGSTOP makes the broker hang; SIGCONT resumes it.
        """
        self._send_order("signal", broker_id, signal=int(signum))

    def restart_broker(self, broker_id: int) -> None:
        """Stop a broker or the controller if it runs, and start it with its data and ports.

        The function returns once every broker that should run is registered. After a kill -9, the
        broker can register again only when its old session has timed out
        (broker.session.timeout.ms, 9 s).
        """
        self._send_order("restart", broker_id)

    def forget_page_cache(self) -> int:
        """Drop the brokers' log segments from the page cache; return the segments' size [B].

        Raises:
            ConfigError: the operating system does not support this.
        """
        return forget(NodeFiles(node).data for node in self.brokers.values())

    def detach(self) -> None:
        """Let the testbed continue after the end of this process, until `redline testbed down`."""
        with self._lock:
            self._send_order("detach")
            self._close()

    def stop(self, *, is_hasty: bool = False, reason: str = "") -> None:
        """Stop the brokers and delete their data; a second call does nothing.

        Args:
            is_hasty: whether the brokers are killed at once.
            reason: the error with which the testbed's owner stopped. If there is an error, the logs
                are kept. If the text is empty, the logs are deleted.
        """
        with self._lock:
            if self._is_stopped:
                return
            try:
                self._channel.send({"order": "stop", "is_hasty": is_hasty, "reason": reason})
            except ChannelClosedError:
                # The supervisor has ended; `locked_sweep` deletes the remaining files.
                self._process.poll()
            self._await_supervisor(_STOP_DEADLINE_S)
            self._close()
            locked_sweep(self.folder.parent)

    def __enter__(self) -> Testbed:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        # An interrupt kills the brokers at once; after an error the logs are kept.
        is_error = kind is not None and issubclass(kind, Exception)
        reason = f"its owner stopped with {kind.__name__}: {error}" if kind and is_error else ""
        self.stop(is_hasty=kind is not None, reason=reason)

    def await_ready(self, deadline_s: float) -> None:
        """Wait until the supervisor reports that all nodes are ready.

        Raises:
            TestbedStartError: the testbed failed; the message has the reason and the logs' folder.
        """
        self._await_event("ready", deadline_s)
        state = read_state(self.folder)
        if state is None:
            self.raise_end()
        self.state = state

    def raise_end(self) -> NoReturn:
        """Wait until the supervisor reports a failure, and raise this failure. The testbed's folder
        is deleted.

        Raises:
            TestbedLostError: a process of the testbed or its supervisor ended.
            TestbedDiskError: the testbed reached its disk limit.
            TestbedStartError: the supervisor does not answer.
        """
        self._await_event("failed", _ANSWER_DEADLINE_S)  # raises the failure
        raise self._lost()

    def abandon(self) -> None:
        """End the testbed after an interrupted start, without an orderly stop of its processes."""
        with self._lock:
            self._close()
            self._await_supervisor(_KILL_DEADLINE_S)
            locked_sweep(self.folder.parent)

    def reap(self) -> None:
        """Reap the supervisor's process if the supervisor has ended."""
        self._process.poll()

    def _send_order(self, order: str, node_id: int | None = None, **more: int) -> None:
        if node_id not in (None, *(node.node_id for node in self.state.nodes)):
            raise TestbedStateError(
                f"testbed {self.name} has no node {node_id}; expected one of "
                f"{', '.join(map(str, self.broker_ids))}"
            )
        with self._lock:
            if self._is_stopped:
                raise TestbedStateError(f"testbed {self.name} is stopped; start another one")
            self._receive(timeout_s=0)
            try:
                self._channel.send({"order": order, "node": node_id, **more})
            except ChannelClosedError:
                raise self._lost() from None
            self._await_event("done", _ANSWER_DEADLINE_S)

    def _await_event(self, event: str, deadline_s: float) -> None:
        ends_s = time.monotonic() + deadline_s
        while time.monotonic() < ends_s:
            message = self._receive(timeout_s=1.0)
            if message is not None and message["event"] == event:
                return
        raise TestbedStartError(
            f"the supervisor of testbed {self.name} did not answer within {deadline_s:.0f} s; "
            f"expected an answer; read the supervisor's log, {self.folder / SUPERVISOR_LOG}"
        )

    def _receive(self, timeout_s: float) -> Message | None:
        if self._failure is not None:
            raise self._failure
        try:
            message = self._channel.receive(timeout_s)
        except ChannelClosedError:
            raise self._lost() from None
        if message is not None and message["event"] == "failed":
            self._failure = error_of_kind(message["kind"], message["message"])
            raise self._failure
        return message

    def _lost(self) -> RedlineError:
        code = self._process.poll()
        said = tail_text(self.folder / SUPERVISOR_LOG, lines=3)
        self._failure = error_of_kind(
            "lost",
            f"the supervisor of testbed {self.name} ended unexpectedly (exit code {code})"
            + (f" and logged:\n{said}" if said else " and logged nothing; it may have been killed"),
        )
        return self._failure

    def _await_supervisor(self, deadline_s: float) -> None:
        for action, patience_s in (
            (None, deadline_s),
            (self._process.terminate, _KILL_DEADLINE_S),
            (self._process.kill, _KILL_DEADLINE_S),
        ):
            if action is not None:
                action()
            with suppress(subprocess.TimeoutExpired):  # continue with the next action
                self._process.wait(patience_s)
                return

    def _close(self) -> None:
        self._is_stopped = True
        self._channel.close()
