"""The wheel as `make dist` builds it, and a Python that has its dependencies but not it."""

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
    """Build the wheel without a network, from a copy in `folder`: the checkout stays clean."""
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


def python_without_us(folder: Path) -> Path:
    """A Python that imports the packages installed here, and nothing of this project.

    An editable install is a .pth file in the folder of packages; on a path that another .pth
    file adds, such files are not read.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    packages = sysconfig.get_path("purelib")
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (own / "dependencies.pth").write_text(f"{packages}\n")
    return folder / "bin" / "python"
