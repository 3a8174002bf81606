"""Set-up installs exactly the pinned packages: those of runs, then those of developers."""

from __future__ import annotations

import ast
import importlib.metadata
import itertools
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from jobs.setup.bootstrap import BUILD_TOOLS, DEVELOPERS, FETCHERS, RUNS, requirement_lines
from tests.support.package_owners import owners

ROOT = Path(__file__).parents[2]


def _holds(pin: Requirement) -> bool:
    """Whether a requirement applies to this Python."""
    return pin.marker is None or pin.marker.evaluate()


def _pins() -> dict[str, str]:
    """Name → version, of the lines that hold for this Python."""
    pins: dict[str, str] = {}
    for line in (ROOT / "conf" / "constraints.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pin = Requirement(line)
        if _holds(pin):
            assert re.fullmatch(r"==[^*,]+", str(pin.specifier)), f"not exact: {line}"
            assert canonicalize_name(pin.name) not in pins, f"pinned twice: {line}"
            pins[canonicalize_name(pin.name)] = str(pin.specifier)[2:]
    return pins


def _direct() -> dict[str, list[str]]:
    """The lists of requirements in setup.py, by name."""
    found: dict[str, list[str]] = {}
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name == "REQUIRES":
                found["required"] = ast.literal_eval(node.value)
            elif name == "EXTRAS":
                found.update(ast.literal_eval(node.value))
    return found


def _closure(wanted: Iterable[str]) -> set[str]:
    """The names of all that `wanted` needs, as far as it is installed here."""
    queue, seen = [Requirement(text) for text in wanted], set[str]()
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        if name in seen:
            continue
        seen.add(name)
        for text in importlib.metadata.requires(name) or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                queue.append(needed)
    return seen


def _needed(*extras: str) -> set[str]:
    """The names of all that this project needs with some of its extras."""
    direct = _direct()
    return _closure([text for name in ("required", *extras) for text in direct[name]])


def test_every_package_that_is_installed_is_pinned_at_its_version() -> None:
    pins = _pins()
    names = _needed(*_direct().keys() - {"gssapi"})
    installed = {name: importlib.metadata.version(name) for name in names}
    assert {name: pins.get(name) for name in names} == installed


def test_the_extras_are_pinned_and_every_pin_is_within_its_range() -> None:
    pins = _pins()
    for text in [text for texts in _direct().values() for text in texts]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), text


def _hashed(name: str) -> list[str]:
    whole = (ROOT / "conf" / name).read_text().replace("\\\n", "").splitlines()
    return [line for line in whole if line and not line.startswith("#")]


def _pin(line: str) -> str:
    return line.partition("--hash=")[0].rstrip()


def test_every_pin_has_its_hashes() -> None:
    """Three files have the hashes of downloads; conf/constraints.txt has the versions.

    Packages that cannot be installed everywhere are in conf/hashes-kerberos.txt.
    """
    known = [_hashed(name) for name in (RUNS.pins, DEVELOPERS.pins, "hashes-kerberos.txt")]
    lines = (ROOT / "conf" / "constraints.txt").read_text().splitlines()
    pinned = [line for line in lines if line and not line.startswith("#")]
    assert sorted(_pin(line) for line in itertools.chain(*known)) == sorted(pinned)
    for line in itertools.chain(*known):
        hashes = line.split()[-line.count("--hash=") :]
        assert hashes and all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", each) for each in hashes)


def test_the_packages_of_runs_come_without_those_of_developers() -> None:
    pins = [Requirement(_pin(line)) for line in _hashed(RUNS.pins)]
    assert {canonicalize_name(pin.name) for pin in pins if _holds(pin)} == _needed(*RUNS.extras)
    for names in (BUILD_TOOLS, FETCHERS):
        chosen = requirement_lines((ROOT / "conf" / RUNS.pins).read_text(), names).splitlines()
        assert {line.partition("==")[0].replace("_", "-") for line in chosen} == set(names)
        assert all(" --hash=sha256:" in line for line in chosen)


@pytest.mark.computes
def test_packages_that_runs_import_are_installed_for_runs() -> None:
    """A package that only `make test` installs would be missed by `make demo` on a fresh machine.

    A notebook brings IPython itself.
    """
    came_with = owners()
    imported = {
        owner
        for folder in ("jobs", "metrics", "search", "conf")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for module in _modules(node)
        for owner in came_with.get(module, ())
    }
    assert {"kafka-python", "pyspark", "vl-convert-python"} <= imported, "the imports are found"
    assert imported <= {"kafka-redline", "ipython", *_needed(*RUNS.extras)}


def _modules(node: ast.AST) -> list[str]:
    """The top-level names of an import."""
    if isinstance(node, ast.Import):
        return [each.name.partition(".")[0] for each in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module.partition(".")[0]]
    return []
