"""Virtual environments with another release of Spark, and the packages of a platform that has it.

The versions of packages are those of the platform's release notes, as far as this project needs
the packages; pip gets them as constraints, so an installation of the wheel replaces none of them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock

from jobs.setup.bootstrap import STORED
from jobs.setup.places import cache_dir

INSTALL_S = 900.0
"""Time to download Spark and build its wheel, on two busy cores [s]."""
BUILD_TOOLS = ("setuptools==80.9.0", "wheel==0.45.1")
EXTRAS = "charts"
PLATFORMS = Path(__file__).parents[1] / "data" / "platforms"
KERNEL = ("ipykernel",)
"""What a notebook needs beside the wheel."""


@dataclass(frozen=True)
class SparkEnvironment:
    """An environment to be made.

    Attributes:
        platform: whose packages these are.
        replaced: packages of the platform that an installation replaces, with their versions there.
    """

    spark: str
    delta: str
    platform: str
    packages: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)

    @property
    def constraints(self) -> str:
        """The versions for pip's option -c."""
        fixed = {"pyspark": self.spark, "delta-spark": self.delta, **self.packages}
        return "".join(f"{name}=={version}\n" for name, version in fixed.items())


def packages_of(platform: str) -> dict[str, str]:
    """Package → version, from the platform's file."""
    file = PLATFORMS / f"{platform.replace(' ', '-').lower()}.txt"
    lines = file.read_text(encoding="utf-8").splitlines()
    return {name: version for name, _, version in (line.partition("==") for line in lines)}


ENVIRONMENTS = {
    "3.5": SparkEnvironment(
        "3.5.7",
        "3.3.2",
        "Databricks 15.4 LTS",
        packages_of("Databricks 15.4 LTS"),
        {"pydantic": "1.10.6"},
    ),
    "3.5 of 16.4": SparkEnvironment(
        "3.5.7", "3.3.2", "Databricks 16.4 LTS", packages_of("Databricks 16.4 LTS")
    ),
    "4.0": SparkEnvironment(
        "4.0.1", "4.0.0", "Databricks 17.3 LTS", packages_of("Databricks 17.3 LTS")
    ),
    "4.1": SparkEnvironment("4.1.4", "4.4.0", "the package index"),
}


class NotInstalledError(Exception):
    """pip could not make the environment, such as without a network."""


class ConflictError(Exception):
    """The wheel requires other versions than the platform has, whatever the network offers."""


def made(environment: SparkEnvironment, wheel: Path) -> Path:
    """The interpreter of an environment, made at its first use; the wheel is always this one.

    Raises:
        NotInstalledError: with the last line of pip.
        ConflictError: with what pip says of the versions.
    """
    recipe = f"{sys.version}\n{environment.constraints}\n{BUILD_TOOLS}\n{KERNEL}"
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:8]
    folder = cache_dir() / "spark-environments" / f"{environment.spark}-{digest}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    python, constraints = folder / "bin" / "python", folder / "constraints.txt"
    with FileLock(f"{folder}.lock"):
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(folder)])
            constraints.write_text(environment.constraints)
            (folder / "stored.cfg").write_text(STORED)
            _pip(python, *BUILD_TOOLS)
            _pip(python, "--no-build-isolation", "--no-deps", f"pyspark=={environment.spark}")
            named = [f"{name}=={version}" for name, version in environment.packages.items()]
            _pip(python, "-c", str(constraints), "delta-spark", *KERNEL, *named)
        _pip(python, "-c", str(constraints), f"{wheel}[{EXTRAS}]")
        _pip(python, "--force-reinstall", "--no-deps", str(wheel))
        (folder / "made").touch()
    return python


def _pip(python: Path, *arguments: str) -> None:
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-compile")
    settings = {"DIST_EXTRA_CONFIG": str(python.parents[1] / "stored.cfg")}
    _run([str(python), "-m", "pip", "install", *quiet, *arguments], settings)


def _run(command: list[str], settings: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        env={**os.environ, **(settings or {})},
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        if any("ResolutionImpossible" in line for line in lines):
            raise ConflictError(done.stderr[-2_000:])
        raise NotInstalledError((lines or [done.stderr.strip() or "pip failed"])[-1][:300])
