"""A process of a testbed, in a separate process group. The module also reads errors in logs."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from jobs.engine.network.namespaces import enter
from jobs.testbed.cleanup import created_s
from jobs.testbed.model import Member, ProcessRecord
from jobs.testbed.places import NodeFiles

_PR_SET_PDEATHSIG = 1

# Environment variables that would change the options of a JVM.
_JVM_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH")


class NodeProcess:
    """A JVM of the testbed, or the delay line of its link.

    Attributes:
        node: the node that the process runs.
        is_down_on_purpose: True once the supervisor has requested the end of the process.

    Args:
        environment: environment variables; by default this process's variables without JVM options.
        cores: numbers of the cores that the process may use; empty for all cores.
        group: folder of the control group that limits the CPU time of the process.
        namespace: file descriptor of the network namespace; None for this process's namespace.
        inherited: file descriptors that the process inherits under the same numbers.
    """

    def __init__(
        self,
        node: Member,
        command: Sequence[str],
        console: Path,
        environment: Mapping[str, str] | None = None,
        cores: Sequence[int] = (),
        group: Path | None = None,
        namespace: int | None = None,
        inherited: Sequence[int] = (),
    ) -> None:
        self.node = node
        self.is_down_on_purpose = False
        with console.open("ab") as stream:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                cwd=node.directory,
                env=jvm_environment(os.environ) if environment is None else dict(environment),
                start_new_session=True,
                pass_fds=tuple(inherited),
                preexec_fn=_before_exec(cores, group, namespace),  # noqa: PLW1509 - the supervisor has one thread
            )
        pid = self._process.pid
        self.record = ProcessRecord(pid, created_s(pid), node.node_id)

    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs. Reaps the process."""
        return self._process.poll()

    def signal(self, signum: int) -> None:
        """Send a signal to the process group, unless the process has ended."""
        if self.exit_code() is None:
            os.killpg(self._process.pid, signum)

    def terminate(self) -> None:
        """Request the end of the process, even if SIGSTOP has stopped it."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill and reap the process."""
        self.signal(signal.SIGKILL)
        self._process.wait()


def jvm_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without variables that change a JVM's options."""
    return {key: value for key, value in environ.items() if key not in _JVM_VARIABLES}


def _before_exec(
    cores: Sequence[int], group: Path | None, namespace: int | None
) -> Callable[[], None] | None:
    """The function that runs between fork and exec; None if the system is not Linux.

    The function applies the limits of the process, and requests from the kernel that the process is
    killed if its parent ends. On systems other than Linux, the processes of a killed supervisor run
    until the next testbed starts, or until `redline testbed down`.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()
    joining = None if group is None else str(group / "cgroup.procs")

    def arm() -> None:
        if cores:
            os.sched_setaffinity(0, cores)
        if joining is not None:
            members = os.open(joining, os.O_WRONLY)
            os.write(members, b"0")  # the writing process
            os.close(members)
        if namespace is not None:
            enter(namespace)
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before this call
            os._exit(1)

    return arm


_TAIL_BYTES = 200_000
_LINES_MAX = 4
_LINE_CHARS_MAX = 300
_ADDRESS_IN_USE = re.compile(r"Address already in use|Port already in use")
_TELLING = re.compile(
    r"\] (ERROR|FATAL) |^[\d/]{8} [\d:]{8} ERROR |^(\S+\.)+\w*(Exception|Error)\b|^Caused by: "
    r"|^Error: |^Exception in thread "
)


def error_lines(node: Member) -> list[str]:
    """The last error lines in a node's logs, the oldest first.

    Without error lines, the result is the last lines of the node's console.
    """
    files = NodeFiles(node)
    logged = [*_tail(files.format_log), *_tail(files.log), *_tail(files.console)]
    telling = _distinct(line for line in logged if _TELLING.search(line))
    chosen = telling or [line for line in _tail(files.console) if line.strip()]
    return [line.strip()[:_LINE_CHARS_MAX] for line in chosen[-_LINES_MAX:]]


def says_address_in_use(node: Member) -> bool:
    """Whether the node's logs report that a port of the node is in use."""
    files = NodeFiles(node)
    return any(_ADDRESS_IN_USE.search(line) for path in (files.log, files.console)
               for line in _tail(path))  # fmt: skip


def tail_text(path: Path, lines: int) -> str:
    """The last lines of a file; empty if the file does not exist."""
    return "\n".join(_tail(path)[-lines:])


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - _TAIL_BYTES))
            return stream.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:  # the node ended before it wrote the file
        return []


def _distinct(lines: Iterable[str]) -> list[str]:
    """The lines without repetitions; the time at the start of a line is ignored."""
    seen: dict[str, str] = {}
    for line in lines:
        seen.setdefault(re.sub(r"^\[[^\]]*\] ", "", line), line)
    return list(seen.values())
