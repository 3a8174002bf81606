"""Set-up: checks the machine, makes .venv, installs the pinned packages, downloads the jars.

`make setup` runs this module with the machine's own Python, so the module uses only the standard
library and writes to the standard streams itself. After set-up, `make test` runs the module with
`--dev`, which adds the packages for developers. `make test-fast` runs the module with `--unit` in a
checkout without set-up, because unit tests need no Spark, no Java and no jars.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from jobs.setup.places import cache_dir, checkout_root
from jobs.setup.preflight import check_machine, venv_problem
from metrics.common.errors import ConfigError, RedlineError

LOG_NAME = "setup.log"


@dataclass(frozen=True)
class PackageSet:
    """The packages that one step of set-up installs.

    Attributes:
        stamp: file in .venv that marks the packages as installed.
        pins: file in conf with the packages, their dependencies and their hashes.
        extras: extras of this project.
    """

    stamp: str
    pins: str
    extras: tuple[str, ...]


RUN_EXTRAS = ("spark", "charts", "live", "forecast", "librdkafka", "msk")
"""Extras of this project that are needed for runs. Further extras are for notebooks, for wheels,
for development and for Kerberos. The package for Kerberos has no wheel for Linux.
"""

RUNS = PackageSet(".ready", "hashes.txt", (*RUN_EXTRAS, "dist"))
"""Packages for runs, and for `make dist`, which makes the executors' wheel."""
DEVELOPERS = PackageSet(".ready-dev", "hashes-dev.txt", ("dev",))
"""Additional packages for tests, linters and benchmarks."""

BUILD_TOOLS = ("packaging", "setuptools", "wheel")
STORED = "[bdist_wheel]\ncompression = stored\n"
"""Settings that make setuptools store the files of a wheel without compression. pip builds
PySpark's wheel from source with half a gigabyte of jars, and to compress these jars again would
take 10 of the 23 s of the installation.
"""
FETCHERS = ("delta-spark", "filelock", "py4j", "pyspark")
"""Packages that choose and download the jars."""
SPARK = ("delta-spark", "py4j", "pyspark")
"""Packages that unit tests do not need."""
UNIT_STAMP = ".ready-unit"

_OFFLINE = re.compile(
    r"failure in name resolution|NameResolutionError|Name or service not known"
    r"|NewConnectionError|Connection refused|ConnectTimeout|ReadTimeoutError"
    r"|Network is unreachable|ProxyError|Max retries exceeded|Errno -[23]\b"
)


def set_up(root: Path) -> None:
    """Prepare `root`/.venv for `redline`, and the cache for work without a network.

    Raises:
        ConfigError: a requirement of set-up is missing.
    """
    started_s = time.monotonic()
    problem = venv_problem()
    if problem:
        raise ConfigError(problem)
    check_machine(root)
    log = _new_log()
    environment = root / ".venv"
    _print(
        f"Set-up installs packages in {environment}, and downloads jars to {log.parent}. "
        f"The log is {log}."
    )
    python = make_environment(environment)
    _print("Installing the packages takes about a minute...")
    pins = (root / "conf" / RUNS.pins).read_text()
    for names in (BUILD_TOOLS, FETCHERS):
        _install_pins(python, root, log, requirement_lines(pins, names))
    _print(
        "Downloading the jars of Delta, Kafka and the exporter in parallel takes about a minute."
    )
    with ThreadPoolExecutor(2) as pool:
        jars = pool.submit(_run_jars, python, root)
        # The class archive halves the start time of Spark. Without it Spark only starts slowly.
        prepared = pool.submit(_run, [python, "-m", "jobs.spark.prepare"], root, log)
        install(python, root, log, RUNS)
        jars.result()
        prepared.result()
    (environment / RUNS.stamp).write_text("")
    _print(f"Set-up done in {time.monotonic() - started_s:.0f} s.")


def add_developers(root: Path) -> None:
    """Install the additional packages for developers into `root`/.venv.

    Raises:
        ConfigError: `root`/.venv is not set up, or a package could not be installed.
    """
    started_s = time.monotonic()
    environment = root / ".venv"
    if not (environment / RUNS.stamp).exists():
        raise ConfigError(f"{environment} is not set up; run make setup first.")
    log = _new_log()
    _print(
        f"Installing the developers' packages takes about half a minute, once. The log is {log}."
    )
    install(environment / "bin" / "python", root, log, DEVELOPERS)
    (environment / DEVELOPERS.stamp).write_text("")
    _print(f"Installed in {time.monotonic() - started_s:.0f} s.")


def set_up_for_unit_tests(root: Path) -> None:
    """Install all packages except Spark's into `root`/.venv.

    Raises:
        ConfigError: a package could not be installed.
    """
    log = _new_log()
    python = make_environment(root / ".venv")
    _print(f"Installing the packages of the unit tests takes about a minute. The log is {log}.")
    pins = "".join((root / "conf" / each.pins).read_text() for each in (RUNS, DEVELOPERS))
    others = {_name_of(line) for line in pins.splitlines() if "==" in line} - {*SPARK}
    for names in (BUILD_TOOLS, others):
        _install_pins(python, root, log, requirement_lines(pins, names))
    checkout = ("--no-build-isolation", "--no-deps", "-e", ".")
    _run_pip([python, *_PIP, *checkout], root, log)
    (root / ".venv" / UNIT_STAMP).write_text("")


def make_environment(folder: Path) -> Path:
    """Make a virtual environment of this Python in `folder`; return the path of its Python.

    An environment from an interrupted set-up is reused if it works and has this version of Python.
    """
    python = folder / "bin" / "python"
    if _is_usable(python):
        return python
    try:
        venv.EnvBuilder(with_pip=True, clear=True, symlinks=True).create(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError(
            f"{sys.executable} could not make a virtual environment in {folder} ({error}). "
            "Name another Python: make setup PYTHON=/path/to/python3."
        ) from error
    return python


def install(python: Path, root: Path, log: Path, part: PackageSet) -> None:
    """Install all packages of a set, and then this checkout in editable mode.

    On systems other than Linux, the requirements of the checkout add packages that are not in the
    set.
    """
    _run_pip([python, *_KNOWN, root / "conf" / part.pins], root, log)
    with ThreadPoolExecutor(1) as pool:
        compiled = pool.submit(_compile, python, root, log)
        pinned = ("-c", root / "conf" / "constraints.txt", "--no-build-isolation")
        _run_pip([python, *_PIP, *pinned, "-e", f".[{','.join(part.extras)}]"], root, log)
        compiled.result()


def _install_pins(python: Path, root: Path, log: Path, pins: str) -> None:
    """Install the packages that are named by these lines of a requirements file.

    Every downloaded file has a known SHA-256. Build tools also have known hashes, because pip runs
    without build isolation.
    """
    chosen, building = log.with_name("some-hashes.txt"), log.with_name("building.cfg")
    chosen.write_text(pins)
    building.write_text(STORED)
    _run_pip([python, *_KNOWN, chosen], root, log, {"DIST_EXTRA_CONFIG": str(building)})


def _compile(python: Path, root: Path, log: Path) -> None:
    """Compile the installed packages on all cores, because pip uses only one core.

    The tests inside the packages are not compiled. A file that cannot be compiled, such as a
    template, is reported in the log and is not a failure. Python compiles each remaining file when
    the file is imported.
    """
    installed = str(python.parent.parent / "lib")
    _run([python, "-m", "compileall", "-q", "-j", "0", "-x", r"/tests?/", installed], root, log)


_PIP = ("-m", "pip", "install", "--disable-pip-version-check", "--no-compile")
_KNOWN = (*_PIP, "--no-build-isolation", "--no-deps", "--require-hashes", "-r")


def requirement_lines(requirements: str, names: Collection[str]) -> str:
    """The lines of the named packages in a requirements file, with their hashes."""
    whole = requirements.replace("\\\n", "").splitlines()
    return "".join(f"{line}\n" for line in whole if _name_of(line) in names)


def _name_of(line: str) -> str:
    return line.partition("==")[0].replace("_", "-").lower()


def pip_problem(log_text: str, log: Path) -> str:
    """The message for the failure in pip's log."""
    unreachable = _OFFLINE.search(log_text)
    if unreachable:
        return (
            "Set-up needs the network the first time, and pip could not reach its package "
            f"index ({unreachable.group(0)}). Connect, or set pip's index or proxy, then run "
            f"make again. The log is {log}."
        )
    errors = [line for line in log_text.splitlines() if line.startswith("ERROR")]
    lines = errors or [line for line in log_text.splitlines() if line.strip()] or ["no output"]
    last = lines[-1].removeprefix("ERROR: ")[:300]
    return (
        f"pip could not install the packages ({last}). "
        f"Read the log {log}, remove the cause, then run make again."
    )


def _run_pip(
    command: Sequence[str | Path], root: Path, log: Path, environ: Mapping[str, str] | None = None
) -> None:
    if _run(command, root, log, environ) != 0:
        raise ConfigError(pip_problem(log.read_text(errors="replace"), log))


def _run(
    command: Sequence[str | Path], root: Path, log: Path, environ: Mapping[str, str] | None = None
) -> int:
    """Run a command with its output in the log; return its exit code."""
    words = [str(each) for each in command]
    with log.open("a") as stream:
        stream.write(f"$ {' '.join(words)}\n")
        stream.flush()
        return subprocess.run(
            words,
            cwd=root,
            env={**(environ or {}), **os.environ},
            stdout=stream,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode


def _run_jars(python: Path, root: Path) -> None:
    done = subprocess.run([str(python), "-m", "jobs.setup.jars"], cwd=root, check=False)
    if done.returncode != 0:
        # The child process has written the cause to standard error.
        raise SystemExit(done.returncode)


def _is_usable(python: Path) -> bool:
    code = "import pip, sys; print(sys.base_prefix, *sys.version_info[:2])"
    try:
        done = subprocess.run(
            [str(python), "-c", code], capture_output=True, text=True, check=False
        )
    except OSError:  # the file does not exist, or its Python was uninstalled
        return False
    return done.stdout.split() == [sys.base_prefix, *(str(part) for part in sys.version_info[:2])]


def _new_log() -> Path:
    """Make an empty log in the cache folder, which is made if it is missing."""
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The cache folder {folder} cannot be made ({error.strerror}). "
            "Name another folder in the environment variable REDLINE_CACHE."
        ) from error
    log = folder / LOG_NAME
    log.write_text("")
    return log


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Set up the checkout that contains this file; return the exit code."""
    parser = argparse.ArgumentParser(description="Set up the checkout that contains this file.")
    parser.set_defaults(step=set_up)
    steps = parser.add_mutually_exclusive_group()
    for option, step, words in (
        ("--dev", add_developers, "add the packages for developers to a finished set-up"),
        ("--unit", set_up_for_unit_tests, "install only the packages for unit tests"),
    ):
        steps.add_argument(option, dest="step", action="store_const", const=step, help=words)
    chosen = parser.parse_args(arguments).step
    root = checkout_root()
    if root is None:
        sys.stderr.write(
            "This folder is not a checkout of the project; expected a checkout for set-up; clone "
            "the repository.\n"
        )
        return ConfigError.exit_code
    try:
        chosen(root)
    except RedlineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("Set-up was interrupted; run it again to finish.\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
