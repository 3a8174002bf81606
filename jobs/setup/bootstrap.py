"""Set-up: checks the machine, makes .venv, installs the pinned packages, resolves the jars.

`make setup` runs it with the machine's own Python, so it uses the standard library only
and writes to the standard streams itself: the console's library is not installed yet.
`make test` runs it with `--dev` after that, which adds what only developers need.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from jobs.setup.places import cache_dir, checkout_root
from jobs.setup.preflight import check_machine, venv_problem
from metrics.common.errors import ConfigError, RedlineError

LOG_NAME = "setup.log"


@dataclass(frozen=True)
class PackageSet:
    """Of what the environment has: what is installed at one time.

    Attributes:
        stamp: the file in .venv that says it is all there.
        pins: the file in conf with its packages, all that they need in turn, and their hashes.
        extras: of this project.
    """

    stamp: str
    pins: str
    extras: tuple[str, ...]


RUN_EXTRAS = ("spark", "charts", "live", "librdkafka", "msk")
"""Of our extras those that runs are made of; the others are for notebooks, wheels and development,
and for Kerberos, which Linux has no wheel of."""

RUNS = PackageSet(".ready", "hashes.txt", (*RUN_EXTRAS, "dist"))
"""What runs need, and `make dist`: executors get a wheel."""
DEVELOPERS = PackageSet(".ready-dev", "hashes-dev.txt", ("dev",))
"""What tests, checks of style and benchmarks need besides."""

BUILD_TOOLS = ("packaging", "setuptools", "wheel")
STORED = "[bdist_wheel]\ncompression = stored\n"
"""For setuptools: PySpark comes as source, and the wheel that pip makes of it holds half a gigabyte
of jars. To compress them once more took 10 of the 23 s that it takes to install."""
FETCHERS = ("delta-spark", "filelock", "py4j", "pyspark")
"""What the jars are chosen by, and fetched with."""

_OFFLINE = re.compile(
    r"failure in name resolution|NameResolutionError|Name or service not known"
    r"|NewConnectionError|Connection refused|ConnectTimeout|ReadTimeoutError"
    r"|Network is unreachable|ProxyError|Max retries exceeded|Errno -[23]\b"
)


def set_up(root: Path) -> None:
    """Make `root`/.venv ready to run `redline`, and the cache ready to work offline.

    Raises:
        ConfigError: something that set-up needs is missing; the message is for people.
    """
    started_s = time.monotonic()
    problem = venv_problem()
    if problem:
        raise ConfigError(problem)
    check_machine(root)
    log = _new_log()
    environment = root / ".venv"
    _print(f"Set-up, once: packages into {environment}, jars into {log.parent}. The log is {log}.")
    python = make_environment(environment)
    _print("Installing the packages, about a minute...")
    _install_first(python, root, log, BUILD_TOOLS)
    _install_first(python, root, log, FETCHERS)
    _print("Resolving the jars of Delta, Kafka and the exporter meanwhile, about a minute...")
    with ThreadPoolExecutor(2) as pool:
        jars = pool.submit(_run_jars, python, root)
        prepared = pool.submit(_prepare_spark, python, root, log)
        install(python, root, log, RUNS)
        jars.result()
        prepared.result()
    (environment / RUNS.stamp).write_text("")
    _print(f"Set-up done in {time.monotonic() - started_s:.0f} s.")


def add_developers(root: Path) -> None:
    """Install what only developers need into `root`/.venv, which is set up.

    Raises:
        ConfigError: it is not set up, or something could not be installed.
    """
    started_s = time.monotonic()
    environment = root / ".venv"
    if not (environment / RUNS.stamp).exists():
        raise ConfigError(f"{environment} is not set up; run make setup first.")
    log = _new_log()
    _print(f"Installing what only developers need, once, about half a minute. The log is {log}.")
    install(environment / "bin" / "python", root, log, DEVELOPERS)
    (environment / DEVELOPERS.stamp).write_text("")
    _print(f"Installed in {time.monotonic() - started_s:.0f} s.")


def make_environment(folder: Path) -> Path:
    """A virtual environment of this Python in `folder`; returns its interpreter.

    One that an interrupted set-up left is used again if it works and is of this Python.
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
    """Install all pins of a part, then this checkout, editable.

    What another system than Linux needs besides comes with the checkout.
    """
    _run_pip([*_pip(python), *_KNOWN, str(root / "conf" / part.pins)], root, log)
    with ThreadPoolExecutor(1) as pool:
        compiled = pool.submit(_compile, python, root, log)
        pinned = ("-c", str(root / "conf" / "constraints.txt"))
        checkout = ("--no-build-isolation", "-e", f".[{','.join(part.extras)}]")
        _run_pip([*_pip(python), *pinned, *checkout], root, log)
        compiled.result()


def _install_first(python: Path, root: Path, log: Path, names: Sequence[str]) -> None:
    """Install some of what runs need, before the rest.

    Each file that is downloaded has a known SHA-256, build tools too, as nothing is built in an
    environment of pip's own.
    """
    chosen, building = log.with_name("some-hashes.txt"), log.with_name("building.cfg")
    chosen.write_text(requirement_lines((root / "conf" / RUNS.pins).read_text(), names))
    building.write_text(STORED)
    known = [*_pip(python), *_KNOWN, str(chosen)]
    _run_pip(known, root, log, {"DIST_EXTRA_CONFIG": str(building)})


def _compile(python: Path, root: Path, log: Path) -> None:
    """Compile what is installed on all cores; pip does it on one.

    Without the packages' own tests, which nobody runs. What cannot be compiled, such as templates
    of packages, is for the log and no failure: nobody imports it, and whatever is imported
    uncompiled is compiled then.
    """
    installed = str(python.parent.parent / "lib")
    options = ("-q", "-j", "0", "-x", r"/tests?/")
    command = [str(python), "-m", "compileall", *options, installed]
    with log.open("a") as stream:
        subprocess.run(command, cwd=root, stdout=stream, stderr=stream, check=False)


def _prepare_spark(python: Path, root: Path, log: Path) -> None:
    """Leave what lets Spark start in half the time; without it all works, so it may fail."""
    with log.open("a") as stream:
        command = [str(python), "-m", "jobs.spark.prepare"]
        subprocess.run(command, cwd=root, stdout=stream, stderr=stream, check=False)


_KNOWN = ("--no-build-isolation", "--no-deps", "--require-hashes", "-r")


def _pip(python: Path) -> list[str]:
    return [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]


def requirement_lines(requirements: str, names: Sequence[str]) -> str:
    """The lines of some packages of a file of requirements, each with the hashes below it."""
    whole = requirements.replace("\\\n", "").splitlines()
    return "".join(f"{line}\n" for line in whole if _name_of(line) in names)


def _name_of(line: str) -> str:
    """Of the package of a line of requirements, as the package index compares names."""
    return line.partition("==")[0].replace("_", "-").lower()


def pip_problem(log_text: str, log: Path) -> str:
    """One sentence for people from the log of a failed pip."""
    unreachable = _OFFLINE.search(log_text)
    if unreachable:
        return (
            "Set-up needs the network the first time, and pip could not reach its package "
            f"index ({unreachable.group(0)}). Connect, or set pip's index or proxy, then run "
            f"make again. The whole story is in {log}."
        )
    errors = [line for line in log_text.splitlines() if line.startswith("ERROR")]
    lines = errors or [line for line in log_text.splitlines() if line.strip()] or ["no output"]
    last = lines[-1].removeprefix("ERROR: ")[:300]
    return (
        f"pip could not install the packages ({last}). "
        f"The whole story is in {log}; run make again when it is fixed."
    )


def _run_pip(
    command: Sequence[str], root: Path, log: Path, environ: Mapping[str, str] | None = None
) -> None:
    surroundings = {**(environ or {}), **os.environ}
    with log.open("a") as stream:
        stream.write(f"$ {' '.join(command)}\n")
        stream.flush()
        done = subprocess.run(
            command,
            cwd=root,
            env=surroundings,
            stdout=stream,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        raise ConfigError(pip_problem(log.read_text(errors="replace"), log))


def _run_jars(python: Path, root: Path) -> None:
    done = subprocess.run([str(python), "-m", "jobs.setup.jars"], cwd=root, check=False)
    if done.returncode != 0:
        # It has said why, on our standard error.
        raise SystemExit(done.returncode)


def _is_usable(python: Path) -> bool:
    code = "import pip, sys; print(sys.base_prefix, *sys.version_info[:2])"
    try:
        done = subprocess.run(
            [str(python), "-c", code], capture_output=True, text=True, check=False
        )
    except OSError:  # not there yet, or its Python has been uninstalled
        return False
    return done.stdout.split() == [sys.base_prefix, *(str(part) for part in sys.version_info[:2])]


def _new_log() -> Path:
    """An empty log in the cache's folder, which is made where it is missing."""
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The cache folder {folder} cannot be made ({error.strerror}). "
            "Name another one in the environment variable REDLINE_CACHE."
        ) from error
    log = folder / LOG_NAME
    log.write_text("")
    return log


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Set up the checkout that this file is in; returns the exit code."""
    parser = argparse.ArgumentParser(description="Set up the checkout that this is in.")
    parser.add_argument(
        "--dev",
        action="store_true",
        help="add what only developers need to what is set up, in place of setting up",
    )
    step = add_developers if parser.parse_args(arguments).dev else set_up
    root = checkout_root()
    if root is None:
        sys.stderr.write("Set-up runs in a checkout of the project, and this is not one.\n")
        return ConfigError.exit_code
    try:
        step(root)
    except RedlineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("Set-up was interrupted; run it again to finish.\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
