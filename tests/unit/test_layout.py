"""The direction of imports, and the contents of the wheel."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.support.wheel import built_wheel

ROOT = Path(__file__).parents[2]
PACKAGES = ("search", "metrics", "jobs")
INFO = ".dist-info/"
_Import = ast.Import | ast.ImportFrom


def _modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@cache
def _tree(path: Path) -> ast.Module:
    """The syntax tree of a file, parsed once for all tests."""
    return ast.parse(path.read_text())


@cache
def _import_nodes(path: Path) -> tuple[_Import, ...]:
    """The imports anywhere in a file, found once for all tests."""
    return tuple(_imports_in(_tree(path)))


def _imports_in(tree: ast.AST) -> Iterator[_Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def _imports(path: Path) -> Iterator[str]:
    """The first name of every import anywhere in a file; relative ones count as their package."""
    for node in _import_nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        else:
            own = path.relative_to(ROOT).parts[0]
            yield own if node.level else (node.module or "").partition(".")[0]


def _forbidden(package: str, allowed: set[str]) -> dict[str, set[str]]:
    project = {*PACKAGES, "conf", "notebooks", "tests"}
    found = {
        str(path.relative_to(ROOT)): (set(_imports(path)) & project) - allowed
        for path in _modules(package)
    }
    return {path: names for path, names in found.items() if names}


def test_imports_go_one_way() -> None:
    for package, allowed in (
        ("search", {"search"}),
        ("metrics", {"search", "metrics"}),
        ("jobs", {"search", "metrics", "jobs", "conf"}),
        ("conf", {"conf"}),
    ):
        assert _forbidden(package, allowed) == {}
    standard = {*sys.stdlib_module_names, "search"}
    for path in _modules("search"):
        assert set(_imports(path)) <= standard, path


def _names() -> dict[str, Path]:
    """The project's modules and packages, by their dotted names."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in (*PACKAGES, "conf")
        for path in _modules(package)
    }


def _imported(nodes: Iterable[_Import], names: Mapping[str, Path]) -> Iterator[str]:
    """The project's modules that imports name, by their full dotted names."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif node.module in names:
            module = str(node.module)
            imported = (f"{module}.{alias.name}" for alias in node.names)
            yield from (each if each in names else module for each in imported)


def _circle(imports: Mapping[str, set[str]]) -> str:
    """The first circle of imports, or an empty text."""
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as circle:
        return " → ".join(reversed(circle.args[1]))  # it lists the imported module first
    return ""


def test_modules_import_pyspark_when_they_use_a_session() -> None:
    """So unit tests run without it, and a job says what is missing before it imports it."""
    heavy = {"pyspark", "py4j", "delta"}
    for package in (*PACKAGES, "tests/unit"):
        for path in _modules(package):
            top = [each for each in _tree(path).body if isinstance(each, _Import)]
            names = {name for each in top for name in _top_names(each)}
            assert not names & heavy, path


def _top_names(node: _Import) -> Iterator[str]:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
    yield from ((name or "").partition(".")[0] for name in names)


def test_modules_and_folders_import_each_other_one_way() -> None:
    names = _names()
    imports = {name: {*_imported(_import_nodes(path), names)} for name, path in names.items()}
    assert sum(map(len, imports.values())) > 500, "imports are no longer found"
    assert _circle(imports) == ""
    folders: dict[str, set[str]] = {}
    for name, path in names.items():
        own = str(path.parent.relative_to(ROOT))
        # The top package is empty: modules import it only for its path.
        found = {str(names[each].parent.relative_to(ROOT)) for each in imports[name] if "." in each}
        folders.setdefault(own, set()).update(found - {own})
    assert sum(map(len, folders.values())) > 50, "imports are no longer found"
    assert _circle(folders) == ""


def _feature_of(name: str) -> str:
    """The feature whose folder holds a module; empty for other modules."""
    found = re.fullmatch(r"(?:jobs|metrics)\.features\.(\w+)(\..+)?", name)
    return found[1] if found else ""


def _imports_of_features(names: Mapping[str, Path]) -> Iterator[tuple[str, str]]:
    """Imports of a feature by another one or by the core; commands may import any."""
    for name, path in names.items():
        is_above = re.fullmatch(r"jobs\.\w+", name)
        for each in _imported(_import_nodes(path), names):
            if _feature_of(each) not in ("", _feature_of(name)) and not is_above:
                yield name, each


def test_a_feature_is_imported_by_its_command_and_itself_alone() -> None:
    names = _names()
    features = {_feature_of(name) for name in names} - {""}
    assert {"compare", "doctor", "headroom", "learn", "nightly", "plan", "sweep"} <= features
    assert sorted(_imports_of_features(names)) == []


def test_an_import_is_found_at_any_place() -> None:
    for text, found in (
        ("import one.two", {"one.two"}),
        ("from one import two", {"one.two"}),
        ("from one import Class", {"one"}),
        ("from one.two import x, y", {"one.two"}),
        ("def f():\n    from one import two", {"one.two"}),
        ("if TYPE_CHECKING:\n    import one", {"one"}),
        ("import os\nfrom os import path", set()),
    ):
        assert {*_imported(_imports_in(ast.parse(text)), {"one": ROOT, "one.two": ROOT})} == found
    circle = _circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert circle in ("a → b → c → a", "b → c → a → b", "c → a → b → c")


def test_documents_name_existing_modules() -> None:
    documents = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]
    named = {
        (path.name, found)
        for path in documents
        for found in re.findall(
            r"\b(?:jobs|metrics|search|tests|conf)/[\w/-]+\.(?:py|java|yaml|html)\b",
            path.read_text(encoding="utf-8"),
        )
    }
    assert len(named) > 30, "paths are no longer found"
    assert [each for each in sorted(named) if not (ROOT / each[1]).exists()] == []


def test_set_up_runs_before_any_package_is_installed() -> None:
    own = {"jobs", "metrics"}
    for name in ("setup/bootstrap", "setup/preflight", "setup/places", "setup/version"):
        path = ROOT / "jobs" / f"{name}.py"
        assert set(_imports(path)) <= {*sys.stdlib_module_names, *own}, path
    heavy = {"filelock", "pyspark"}
    code = f"import jobs.setup.bootstrap, sys; print(sorted(set(sys.modules) & {heavy}))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    """The wheel, built as `make dist` does."""
    return zipfile.Path(built_wheel(tmp_path_factory.mktemp("wheel")))


@pytest.mark.computes
def test_the_wheel_holds_every_module_and_all_data_and_nothing_else(wheel: zipfile.Path) -> None:
    held = {name for name in wheel.root.namelist() if not name.endswith("/") and INFO not in name}
    code = {str(path.relative_to(ROOT)) for name in (*PACKAGES, "conf") for path in _modules(name)}
    data = {
        str(path.relative_to(ROOT))
        for folder in ("conf", "metrics/reporting/templates")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    java = {
        str(path.relative_to(ROOT)) for name in PACKAGES for path in (ROOT / name).rglob("*.java")
    }
    assert len(java) > 5
    assert held == code | data | java
    (info,) = [entry for entry in wheel.iterdir() if entry.name.endswith(".dist-info")]
    assert "redline = jobs.cli:main" in (info / "entry_points.txt").read_text()
    metadata = (info / "METADATA").read_text()
    assert "Name: kafka-redline\n" in metadata
    assert {"Provides-Extra: dev", "Provides-Extra: librdkafka"} <= set(metadata.splitlines())


def test_java_classes_are_read_from_a_wheel_that_is_not_unpacked(
    wheel: zipfile.Path, tmp_path: Path
) -> None:
    text = "java_source('metrics.sources', 'RedlineJmxPoller')"
    code = f"from metrics.sources import java_class as it; print(it.__file__); print(it.{text})"
    path = str(wheel.root.filename)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r}); {code}"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    place, _, source = done.stdout.partition("\n")
    assert place.startswith(path)
    assert "public class RedlineJmxPoller {" in source


def test_shared_code_of_tests_is_in_support() -> None:
    of_a_test = re.compile(r"^\s*(?:from|import) tests\b.*\btest_\w+", re.M)
    found = {
        str(path.relative_to(ROOT)): lines
        for path in (ROOT / "tests").rglob("*.py")
        if (lines := of_a_test.findall(path.read_text()))
    }
    assert found == {}
