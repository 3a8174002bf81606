"""Packages of others, made visible to Python as an installation makes them visible."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parent / "packages"
_POINTS = re.compile(r'\[project\.entry-points\."([^"]+)"\]\n(\S+) = "([^"]+)"')
_NAMED = re.compile(r'^name = "([^"]+)"\nversion = "([^"]+)"', re.MULTILINE)


def add_package(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    group: str,
    points: Mapping[str, str],
    modules: Mapping[str, str],
    name: str,
    version: str = "1.0",
) -> None:
    """Add a folder with modules and the metadata of their package to the path of this process.

    Args:
        points: name → module and object, as in an entry point.
        modules: name of a module → its text.
    """
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = "".join(f"{each} = {target}\n" for each, target in points.items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text, encoding="utf-8")
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.syspath_prepend(folder)


def add_project(monkeypatch: pytest.MonkeyPatch, folder: Path, project: str) -> None:
    """Add a project of `tests/support/packages`, as its pyproject.toml describes it."""
    text = (PACKAGES / project / "pyproject.toml").read_text(encoding="utf-8")
    ((group, point, target),) = _POINTS.findall(text)
    ((name, version),) = _NAMED.findall(text)
    modules = {
        each.stem: each.read_text(encoding="utf-8") for each in (PACKAGES / project).glob("*.py")
    }
    add_package(monkeypatch, folder / project, group, {point: target}, modules, name, version)
