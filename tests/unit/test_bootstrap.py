"""Set-up reports a failure in one sentence; the real set-up has prepared these tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.setup import bootstrap
from metrics.common.errors import ConfigError
from tests.support.processes import PATIENCE_S

ROOT = Path(__file__).parents[2]
OFFLINE_LOG = """Looking in links: /wheels
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError("Failed to \
establish a new connection: [Errno -3] Temporary failure in name resolution")': /simple/setuptools/
ERROR: Could not find a version that satisfies the requirement setuptools (from versions: none)
ERROR: No matching distribution found for setuptools
"""


def test_pip_that_fails(snapshot: SnapshotAssertion) -> None:
    assert bootstrap.pip_problem(OFFLINE_LOG, Path("/c/setup.log")) == snapshot
    log = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left\n"
    problem = bootstrap.pip_problem(log, Path("/c/setup.log"))
    assert problem.startswith("pip could not install the packages (Could not install packages due")
    assert "No space left" in problem and "network" not in problem


class QuickBuilder:
    """A builder of environments with the current Python; the real builder takes seconds."""

    def __init__(self, *, with_pip: bool, clear: bool, symlinks: bool) -> None:
        assert with_pip and clear and symlinks

    def create(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (folder / "bin" / "python").chmod(0o755)


def test_an_environment_that_works_is_kept_and_a_broken_one_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("venv.EnvBuilder", QuickBuilder)
    folder = tmp_path / ".venv"
    python = bootstrap.make_environment(folder)
    kept = folder / "kept"
    kept.write_text("")
    assert bootstrap.make_environment(folder) == python
    assert kept.exists()
    python.unlink()
    assert bootstrap.make_environment(folder) == python
    assert python.exists()
    assert not kept.exists()


def test_set_up_needs_a_cache_and_the_developers_packages_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"\.venv is not set up; run make setup first\.$"):
        bootstrap.add_developers(tmp_path)
    assert not (tmp_path / ".venv").exists()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REDLINE_CACHE", str(tmp_path / "file" / "cache"))
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / bootstrap.RUNS.stamp).write_text("")
    for step, root in ((bootstrap.set_up, ROOT), (bootstrap.add_developers, tmp_path)):
        with pytest.raises(
            ConfigError, match="Name another folder in the environment variable REDL"
        ):
            step(root)


def test_fetching_jars_needs_only_the_packages_that_are_installed_first() -> None:
    found = subprocess.run(
        [sys.executable, "-c", IMPORTED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    named = set(found.stdout.split())
    assert "filelock" in named, "the imports are found"
    assert named <= {*bootstrap.FETCHERS, "kafka-redline"}


IMPORTED = """
import sys
before = set(sys.modules)
import jobs.setup.jars
loaded = {each.partition(".")[0] for each in set(sys.modules) - before}
from tests.support.package_owners import owners
came_with = owners()
for name in loaded:
    print(*came_with.get(name, ()))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The parts of a checkout that set-up uses before it installs anything."""
    for name in ("jobs", "metrics", "search", "conf"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "setup.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def _make(checkout: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [shutil.which("make") or "make", *arguments]
    surroundings = {**os.environ, "REDLINE_CACHE": str(checkout / ".cache"), **environ}
    return subprocess.run(command, cwd=checkout, env=surroundings, capture_output=True, text=True,
                          timeout=PATIENCE_S, check=False)  # fmt: skip


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("echo 3.9", "Python 3.9 is too old: redline needs 3.10 or newer. Install a newer Python"),
        ("echo 2.7", "Python 2.7 is too old: redline needs 3.10 or newer. Install a newer Python"),
        ("echo no such version >&2; exit 127", "No Python runs as '"),
        (None, "No Python runs as '/no/such/python': install Python 3.10"),
    ],
)
def test_make_refuses_a_python_in_one_sentence(
    checkout: Path, script: str | None, sentence: str
) -> None:
    path = checkout / "some-python"
    if script is not None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    done = _make(checkout, "test", f"PYTHON={path if script else '/no/such/python'}")
    lines = done.stderr.splitlines()
    assert done.returncode == 2
    assert lines[0].startswith(sentence)
    assert [line for line in lines[1:] if not line.startswith("make")] == []
    assert not (checkout / ".venv").exists()


def test_make_without_java(checkout: Path) -> None:
    tools = checkout / "tools"
    tools.mkdir()
    shell = shutil.which("sh")
    assert shell is not None
    (tools / "sh").symlink_to(shell)
    # No java on this PATH.
    done = _make(checkout, "setup", f"PYTHON={sys.executable}", PATH=str(tools), JAVA_HOME="")
    assert done.returncode == 2
    assert done.stderr.startswith("No java was found on PATH and JAVA_HOME is not set. Install")
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize(
    ("targets", "options"),
    [(("setup", "demo", "dist"), [""]), (("test", "lint", "bench"), ["", "--dev"])],
    ids=["users", "developers"],
)
def test_only_targets_for_developers_install_their_packages(
    checkout: Path, targets: tuple[str, ...], options: list[str]
) -> None:
    module = "jobs.setup.bootstrap"
    for target in targets:
        lines = _make(checkout, "--dry-run", target).stdout.splitlines()
        found = [line.partition(module)[2].strip() for line in lines if module in line]
        assert found == options, target


def test_make_lists_every_target() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("  make ")}
    phony = next(
        line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith(".PHONY")
    )
    assert listed == set(phony.split()[1:])
