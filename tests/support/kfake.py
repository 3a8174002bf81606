"""franz-go's fake Kafka cluster, as brokers of another make than Kafka (tests/data/kfake).

It is built once, where Go is there, and keeps all records in memory.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from tests.support.commands import ROOT

SOURCE = ROOT / "tests" / "data" / "kfake"
BUILD_S = 900.0
"""A build that takes longer has failed; the first one compiles for about a minute [s]."""
START_S = 60.0
"""Brokers that take longer to start have failed [s]."""
MEMORY = "1GiB"
"""Memory beyond which Go collects garbage at any cost."""


def built() -> Path:
    """The program, built if no build of the same sources is there; skips where it cannot be."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed, and kfake is a Go module")
    sources = sorted(each for each in SOURCE.iterdir() if each.is_file())
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()
    program = ROOT / ".cache" / "kfake" / digest[:16] / "kfake"
    if program.exists():
        return program
    # GOTOOLCHAIN keeps an older Go from fetching a newer one.
    environ = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"}
    _require_release(go, environ)
    fetched = _run([go, "mod", "download"], environ)
    if fetched.returncode:
        pytest.skip(f"Go cannot fetch the modules of kfake: {fetched.stderr.strip()[-300:]}")
    program.parent.mkdir(parents=True, exist_ok=True)
    partial = program.with_name(f"kfake-{os.getpid()}")
    done = _run([go, "build", "-trimpath", "-o", str(partial), "."], environ)
    assert done.returncode == 0, done.stderr
    partial.replace(program)
    return program


def _require_release(go: str, environ: dict[str, str]) -> None:
    found = re.search(r"go(\d+)\.(\d+)", _run([go, "version"], environ).stdout)
    wanted = re.search(r"^go (\d+)\.(\d+)", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    assert found is not None and wanted is not None
    if tuple(map(int, found.groups())) < tuple(map(int, wanted.groups())):
        pytest.skip(f"{found[0]} is installed, and kfake needs {wanted[0]} or later")


def _run(command: list[str], environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        check=False,
        cwd=SOURCE,
        env=environ,
        capture_output=True,
        text=True,
        timeout=BUILD_S,
    )


class Kfake:
    """Running brokers; a context manager that ends them.

    They also end when this process ends in any way, as that closes their standard input.

    Attributes:
        bootstrap_servers: HOST:PORT of each broker, with commas between them.
    """

    def __init__(self, brokers: int = 3, records_per_s: float = 0.0) -> None:
        """Start the brokers.

        Args:
            records_per_s: the planted limit of all brokers together; 0 for none [records/s].
        """
        self._process = subprocess.Popen(
            [str(built()), f"-brokers={brokers}", f"-records-per-s={records_per_s:g}"],
            env={**os.environ, "GOMEMLIMIT": MEMORY},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        watchdog = threading.Timer(START_S, self._process.kill)
        watchdog.start()
        self.bootstrap_servers = self._process.stdout.readline().strip()
        watchdog.cancel()
        assert self.bootstrap_servers, f"kfake ended with {self._process.wait()}"

    def __enter__(self) -> Kfake:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        return self._process.pid
