"""Who may import whom, and what the wheel holds."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.wheel import built_wheel

ROOT = Path(__file__).parents[2]
PACKAGES = ("search", "metrics", "jobs")
INFO = ".dist-info/"


def _modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def _imports(path: Path) -> Iterator[str]:
    """The first name of every import anywhere in a file; relative ones count as their package."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            own = path.relative_to(ROOT).parts[0]
            yield own if node.level else (node.module or "").partition(".")[0]


def _forbidden(package: str, allowed: set[str]) -> dict[str, set[str]]:
    ours = {*PACKAGES, "conf", "notebooks", "tests"}
    found = {
        str(path.relative_to(ROOT)): (set(_imports(path)) & ours) - allowed
        for path in _modules(package)
    }
    return {path: names for path, names in found.items() if names}


@pytest.mark.parametrize(
    ("package", "allowed"),
    [
        ("search", {"search"}),
        ("metrics", {"search", "metrics"}),
        ("jobs", {"search", "metrics", "jobs", "conf"}),
        ("conf", {"conf"}),
    ],
)
def test_imports_go_one_way(package: str, allowed: set[str]) -> None:
    assert _forbidden(package, allowed) == {}


def test_search_needs_the_standard_library_only() -> None:
    standard = {*sys.stdlib_module_names, "search"}
    foreign = {
        str(path.relative_to(ROOT)): set(_imports(path)) - standard for path in _modules("search")
    }
    assert {path: names for path, names in foreign.items() if names} == {}


def test_set_up_runs_before_any_package_is_installed() -> None:
    own = {"jobs", "search"}
    for name in ("setup/bootstrap", "checks/preflight", "setup/places", "version"):
        path = ROOT / "jobs" / f"{name}.py"
        assert set(_imports(path)) <= {*sys.stdlib_module_names, *own}, path
    heavy = {"filelock", "pyspark"}
    code = f"import jobs.setup.bootstrap, sys; print(sorted(set(sys.modules) & {heavy}))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_package_is_listed_for_the_wheel() -> None:
    listed = _listed_packages()
    present = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for package in (*PACKAGES, "conf")
        for path in (ROOT / package).rglob("__init__.py")
    }
    assert listed == present


def _listed_packages() -> set[str]:
    tree = ast.parse((ROOT / "setup.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PACKAGES":
            return set(ast.literal_eval(node.value))
    raise AssertionError("setup.py has no list named PACKAGES")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    """The wheel, built as `make dist` does."""
    return zipfile.Path(built_wheel(tmp_path_factory.mktemp("wheel")))


def test_the_wheel_holds_every_module_and_all_data_and_nothing_else(wheel: zipfile.Path) -> None:
    held = {name for name in wheel.root.namelist() if not name.endswith("/") and INFO not in name}
    code = {str(path.relative_to(ROOT)) for name in (*PACKAGES, "conf") for path in _modules(name)}
    data = {
        str(path.relative_to(ROOT))
        for folder in ("conf", "metrics/reporting/page/templates")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert held == code | data


def test_the_wheel_has_the_command_and_the_extras(wheel: zipfile.Path) -> None:
    (info,) = [entry for entry in wheel.iterdir() if entry.name.endswith(".dist-info")]
    assert "redline = jobs.cli:main" in (info / "entry_points.txt").read_text()
    metadata = (info / "METADATA").read_text()
    assert "Name: kafka-redline\n" in metadata
    assert {"Provides-Extra: dev", "Provides-Extra: librdkafka"} <= set(metadata.splitlines())
