"""Checks of this machine before a run. Each problem has one message, with the remedy.

Set-up runs the checks before the virtual environment exists. The module therefore uses only the
standard library, and only modules that an old Python has.
"""

from __future__ import annotations

import importlib.util
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from metrics.common.errors import ConfigError, RedlineError

MIN_PYTHON = (3, 10)
MIN_JAVA = 17
BEFORE_JAVA = 23
"""The first Java with which Spark 3.5 to 4.1 and Delta do not start. The Hadoop of these Spark
releases (3.3.4 to 3.4.2) calls `Subject.getSubject`, which Java no longer supports (JEP 486,
HADOOP-19212)."""
MIN_DISK_BYTES = 3_000_000_000
MIN_MEMORY_BYTES = 4_000_000_000
JAVA_TIMEOUT_S = 30.0

_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_JAVA_REMEDY = (
    f"Install a JDK or JRE {MIN_JAVA} to {BEFORE_JAVA - 1} (for example the package "
    "openjdk-17-jre-headless, or brew install openjdk@17) and put it on PATH or in JAVA_HOME."
)


@dataclass(frozen=True)
class Machine:
    """The places from which the checks read their facts; tests can replace these places.

    Attributes:
        environ: environment variables.
        proc: root of procfs.
        cgroup: root of the control groups, which contain the limits of a container.
    """

    environ: Mapping[str, str]
    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")


def this_machine() -> Machine:
    """The machine and environment of this process."""
    return Machine(environ=dict(os.environ))


def check_machine(folder: Path, machine: Machine | None = None) -> None:
    """Check the machine before a run. All problems are listed in one error.

    Args:
        folder: folder of the data; the disk of this folder is checked, even if the folder does not
            exist yet.
        machine: machine to check; by default this machine.

    Raises:
        ConfigError: the machine does not meet a requirement.
    """
    machine = machine or this_machine()
    found = (
        python_problem(sys.version_info[:2]),
        java_problem(machine),
        disk_problem(folder),
        memory_problem(machine),
    )
    problems = [problem for problem in found if problem]
    if problems:
        raise ConfigError("\n".join(problems))


def python_problem(version: tuple[int, ...]) -> str | None:
    """The problem with this version of Python; None if the version is supported."""
    if version >= MIN_PYTHON:
        return None
    return (
        f"Python {_dotted(version)} is too old: redline needs {_dotted(MIN_PYTHON)} or newer. "
        "Install a newer Python, and name it: make setup PYTHON=/path/to/python3."
    )


def venv_problem() -> str | None:
    """Reason why this Python cannot make a virtual environment; None if it can."""
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    version = _dotted(sys.version_info[:2])
    return (
        f"{sys.executable} (Python {version}) lacks the module {' and '.join(missing)}, which "
        f"makes virtual environments. Install it (on Debian and Ubuntu: apt install "
        f"python{version}-venv) or name another Python: make setup PYTHON=/path/to/python3."
    )


def java_command(environ: Mapping[str, str] | None = None) -> str:
    """The Java launcher that Spark uses: in JAVA_HOME if it is set, otherwise the first on PATH.

    Raises:
        ConfigError: Java is missing.
    """
    environ = os.environ if environ is None else environ
    home = environ.get("JAVA_HOME")
    if home:
        launcher = Path(home) / "bin" / "java"
        if os.access(launcher, os.X_OK):
            return str(launcher)
        raise ConfigError(
            f"JAVA_HOME is {home}, but there is no {launcher}. "
            "Correct JAVA_HOME, or unset it to use the java on PATH."
        )
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path is None:
        raise ConfigError(f"No java was found on PATH and JAVA_HOME is not set. {_JAVA_REMEDY}")
    return on_path


def java_problem(machine: Machine) -> str | None:
    """The problem with the Java for Spark and the brokers; None if Spark can use this Java."""
    try:
        command = java_command(machine.environ)
        version = java_version(command, machine.environ)
    except RedlineError as error:
        return str(error)
    if MIN_JAVA <= version < BEFORE_JAVA:
        return None
    needs = f"redline needs {MIN_JAVA} or newer"
    if version >= BEFORE_JAVA:
        needs = (
            f"Spark needs Java {BEFORE_JAVA - 1} or older, because newer releases do not support "
            "getSubject"
        )
    return f"{command} is Java {version}: {needs}. {_JAVA_REMEDY}"


def java_version(command: str, environ: Mapping[str, str] | None = None) -> int:
    """The major version of a Java launcher, such as 8 for "1.8.0".

    Raises:
        ConfigError: the launcher does not start, or does not print its version.
    """
    try:
        done = subprocess.run(
            [command, "-version"],
            capture_output=True,
            text=True,
            timeout=JAVA_TIMEOUT_S,
            check=False,
            env=None if environ is None else dict(environ),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{command} does not run ({error}). {_JAVA_REMEDY}") from error
    match = _JAVA_VERSION.search(done.stderr + done.stdout)
    if match is None:
        lines = (done.stderr + done.stdout).strip().splitlines() or ["no output"]
        raise ConfigError(
            f"{command} -version printed no version: {lines[-1][:200]} {_JAVA_REMEDY}"
        )
    return int(match.group(1))


def disk_problem(folder: Path, needed_bytes: int = MIN_DISK_BYTES) -> str | None:
    """The problem with the disk that contains `folder`; None if enough space is free."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes >= needed_bytes:
        return None
    return (
        f"The disk of {existing} has {_gigabytes(free_bytes)} free: redline needs "
        f"{_gigabytes(needed_bytes)}. Free some space, or work on another disk."
    )


def memory_problem(machine: Machine, needed_bytes: int = MIN_MEMORY_BYTES) -> str | None:
    """The problem with the available memory; None if it is sufficient or unknown."""
    available = available_memory_bytes(machine)
    if available is None or available >= needed_bytes:
        return None
    return (
        f"{_gigabytes(available)} of memory is available: the brokers and Spark need "
        f"{_gigabytes(needed_bytes)}. Stop other programs, or give the machine or "
        "container more memory."
    )


def available_memory_bytes(machine: Machine) -> int | None:
    """The smallest of these amounts [B]: the available memory of the machine, the free memory below
    the container's limit, and the limit of `ulimit -v`; None if all are unknown.
    """
    limits = (_kernel_available(machine), _cgroup_available(machine), _address_space())
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _kernel_available(machine: Machine) -> int | None:
    if meminfo := _text(machine.proc / "meminfo"):
        kilobytes = _found(r"^MemAvailable:\s+(\d+) kB", meminfo)
        return int(kilobytes) * 1024 if kilobytes else None
    # On other systems (macOS) the standard library shows only the installed memory.
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def _cgroup_available(machine: Machine) -> int | None:
    """The smallest free memory [B] of this process's control groups. The free memory of a group is
    its limit minus its used memory. Inactive page cache counts as free.
    """
    own = machine.cgroup / _found(r"^0::/(.*)$", _text(machine.proc / "self" / "cgroup"))
    groups = [each for each in (own, *own.parents) if each.is_relative_to(machine.cgroup)]
    free = []
    for folder, limit_file, used_file, cache_key in (
        *((each, "memory.max", "memory.current", "inactive_file") for each in groups),
        (
            machine.cgroup / "memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    ):
        limit = _whole_number(folder / limit_file)
        used = _whole_number(folder / used_file)
        if limit is not None and used is not None:
            cached = _found(rf"^{cache_key} (\d+)$", _text(folder / "memory.stat"))
            free.append(max(0, limit - used + int(cached or 0)))
    return min(free, default=None)


def _found(pattern: str, text: str) -> str:
    """The text that the first group of a pattern matches, in the first line that matches the
    pattern; empty if no line matches.
    """
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else ""


def _whole_number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None  # "max": no limit is set


def _text(path: Path) -> str:
    """The text of a file of the kernel; empty if the system does not have the file."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _address_space() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _gigabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.1f} GB"


def main() -> int:
    """Check this machine for `make`; return the exit code. Each problem is a line on standard
    error.
    """
    try:
        check_machine(Path.cwd())
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
