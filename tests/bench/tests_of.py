"""The tests that import a file of the product, directly or by modules of tests/support.

python -m tests.bench.tests_of search/model.py
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import click

from tests.support.commands import ROOT


def tests_of(files: Iterable[Path]) -> list[Path]:
    """Files of unit tests that import one of these modules.

    Where none does, the tests of the modules that import them, and so on.
    """
    wanted = {_name(each) for each in files}
    tests = {each: _reached(each) for each in (ROOT / "tests" / "unit").glob("test_*.py")}
    product = {
        _name(each): _imports(each)
        for folder in ("jobs", "metrics", "search")
        for each in (ROOT / folder).rglob("*.py")
    }
    while not (found := [path for path, names in tests.items() if names & wanted]):
        users = {name for name, names in product.items() if names & wanted} - wanted
        if not users:
            return []
        wanted |= users
    return sorted(found)


def _reached(path: Path) -> frozenset[str]:
    """The modules that a test imports, and those that its modules of tests/support import."""
    found, waiting = set[str](), [path]
    while waiting:
        for name in _imports(waiting.pop()) - found:
            found.add(name)
            file = ROOT / f"{name.replace('.', '/')}.py"
            if name.startswith("tests.") and file.exists():
                waiting.append(file)
            package = file.with_suffix("") / "__init__.py"
            if package.exists():
                waiting.append(package)
    return frozenset(found)


@cache
def _imports(path: Path) -> frozenset[str]:
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return frozenset(names)


def _name(path: Path) -> str:
    parts = path.resolve().relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
def main(files: tuple[Path, ...]) -> None:
    """Print the files of unit tests that import FILES."""
    found = tests_of(files)
    if not found:
        raise click.ClickException(
            f"no unit test imports {', '.join(map(str, files))}, and none a module that does; "
            "run make test"
        )
    click.echo("\n".join(str(each.relative_to(ROOT)) for each in found))


if __name__ == "__main__":
    main()
