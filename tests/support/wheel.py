"""The wheel of `make dist`, and a Python with its dependencies but without this project."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("search", "metrics", "jobs", "conf")


def built_wheel(folder: Path) -> Path:
    """Build the wheel without a network, from a copy in `folder`, so the checkout stays clean."""
    source, target = folder / "source", folder / "dist"
    for name in PACKAGES:
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=skipped)
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target)]
    done = subprocess.run([*build, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = target.glob("kafka_redline-*-py3-none-any.whl")
    return wheel


def python_without_project(folder: Path) -> Path:
    """A Python that imports the installed packages, but not this project.

    An editable install is a .pth file in the folder of packages; Python does not read .pth files
    in a folder that another .pth file adds.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    packages = sysconfig.get_path("purelib")
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (own / "dependencies.pth").write_text(f"{packages}\n")
    return folder / "bin" / "python"
