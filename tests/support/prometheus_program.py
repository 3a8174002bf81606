"""A Prometheus server from Debian's package, on loopback, for tests.

The package is downloaded once, by apt, which checks it against Debian's signed list; nothing is
installed. Where apt has none, the tests are skipped with a sentence.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from jobs.testbed.places import free_ports
from tests.support.commands import ROOT
from tests.support.processes import becomes

PACKAGE = "prometheus"
KNOWN = {
    "prometheus_2.42.0+ds-5+deb12u1_amd64.deb": (
        "81d59a24fce84f7fbe97a45a4f2914b6a5881b5cd1db2a6a0e129e515e1a5f55"
    )
}
"""File of the package → its SHA-256, of the release that is tested; apt checks that of others."""
FETCH_S = 300.0
_SUPERVISED = '"$@" & read -r _; kill -CONT $!; kill $!; wait $!'
"""A shell that ends the server when its standard input is closed, as by the end of the tests."""
START_S = 60.0
"""A server that takes longer to start has failed [s]."""


def program() -> Path:
    """The server's program; skips where it cannot be downloaded."""
    place = ROOT / ".cache" / "prometheus"
    found = place / "usr" / "bin" / PACKAGE
    if found.exists():
        return found
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("no apt-get here, and the Prometheus server is Debian's package")
    place.mkdir(parents=True, exist_ok=True)
    package = _downloaded(place)
    wanted = KNOWN.get(package.name)
    if wanted is not None:
        assert hashlib.sha256(package.read_bytes()).hexdigest() == wanted, package.name
    _run(["dpkg-deb", "-x", str(package), str(place)], place).check_returncode()
    package.unlink()
    return found


def _downloaded(place: Path) -> Path:
    """The package; apt gets its list first, in a folder of its own, where the system has none."""
    done = _run(["apt-get", "download", PACKAGE], place)
    if done.returncode:
        lists = place / "lists"
        (lists / "partial").mkdir(parents=True, exist_ok=True)
        own = ["-o", f"Dir::State::Lists={lists}", "-o", "APT::Sandbox::User=root"]
        _run(["apt-get", *own, "update"], place)
        done = _run(["apt-get", *own, "download", PACKAGE], place)
    found = sorted(place.glob(f"{PACKAGE}_*.deb"))
    if done.returncode or not found:
        pytest.skip(f"apt has no package {PACKAGE}: {done.stderr.strip()[-300:]}")
    return found[-1]


def _run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, check=False, cwd=folder, capture_output=True, text=True, timeout=FETCH_S
    )


@dataclass(frozen=True)
class Job:
    """Targets that the server scrapes.

    Attributes:
        name: value of the label `job`.
        targets: host:port → further labels of the target.
    """

    name: str
    targets: Mapping[str, Mapping[str, str]]
    interval_s: float = 1.0

    @property
    def config(self) -> dict[str, object]:
        """The job as a section of the server's file."""
        every = f"{round(self.interval_s * 1000)}ms"
        return {
            "job_name": self.name,
            "scrape_interval": every,
            "scrape_timeout": every,
            "static_configs": [
                {"targets": [target], "labels": dict(labels)}
                for target, labels in self.targets.items()
            ],
        }


class RealPrometheus:
    """A running server; a context manager that ends it."""

    def __init__(self, folder: Path, *jobs: Job) -> None:
        self._folder = folder
        self._jobs = jobs
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> RealPrometheus:
        file, log = self._folder / "prometheus.json", self._folder / "prometheus.log"
        # JSON is YAML, which the server reads.
        file.write_text(json.dumps({"scrape_configs": [each.config for each in self._jobs]}))
        options = [
            f"--config.file={file}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SUPERVISED, "sh", str(program()), *options],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        if not becomes(self._is_ready, START_S):
            self.__exit__()
            raise AssertionError(f"Prometheus does not start:\n{log.read_text()[-2000:]}")
        return self

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5.0) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def has_scraped(self, targets: int) -> bool:
        """Whether every target has been scraped twice, once that is so."""
        query = urllib.parse.quote("count_over_time(up[1m]) > 1")

        def is_done() -> bool:
            with urllib.request.urlopen(
                f"{self.url}/api/v1/query?query={query}", timeout=5.0
            ) as answer:
                return len(json.load(answer)["data"]["result"]) == targets

        return becomes(is_done, START_S)

    def pause(self) -> None:
        """Stop the process, so that it neither scrapes nor answers."""
        self._server().suspend()

    def resume(self) -> None:
        self._server().resume()

    def _server(self) -> psutil.Process:
        (server,) = psutil.Process(self._process.pid).children()
        return server

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=START_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
