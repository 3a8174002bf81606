"""Mutations: small changes of a module that some test should notice.

What can be changed and how is mutmut's; which places count is ours. Left out are texts, type
hints, decorators, imports and what an error says, of which a test would be a repetition, and None
in the place of a value, or an argument too few, which mypy refuses.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider
from mutmut.mutation.mutators import (
    mutation_operators,
    operator_arg_removal,
    operator_assignment,
    operator_string,
)

_OPERATORS = [
    (kind, make)
    for kind, make in mutation_operators
    if make not in {operator_string, operator_assignment}
]
_LEFT_OUT = (
    cst.Annotation,
    cst.ConcatenatedString,
    cst.Decorator,
    cst.FormattedString,
    cst.Import,
    cst.ImportFrom,
    cst.Raise,
)
_NAMES_LEFT_OUT = frozenset({"__slots__", "__all__", "TYPE_CHECKING"})


@dataclass(frozen=True, order=True)
class Mutation:
    """One change of one module.

    Attributes:
        path: of the module, from the root of the checkout.
        line, column: where the changed node begins, from 1 and from 0.
        number: among all changes of the module, from 0.
        kind: the rule of mutmut that makes it.
        lines: first and last line that run what is changed.
        at_import: True when these run once, as the module is imported.
    """

    path: str
    line: int
    column: int
    number: int
    kind: str
    lines: tuple[int, int]
    at_import: bool

    @property
    def key(self) -> str:
        """Its name in a list of them."""
        return f"{self.path}:{self.line}:{self.column}:{self.number}:{self.kind}"


class _Places(cst.CSTVisitor):
    """All nodes of a module that may be changed, in the order of the text."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[cst.CSTNode] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, _LEFT_OUT) or _is_left_out(node):
            return False
        self.nodes.append(node)
        return True


def _is_left_out(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Assign):
        names: list[cst.BaseExpression] = [target.target for target in node.targets]
    elif isinstance(node, cst.If):
        names = [node.test]
    else:
        return False
    return any(isinstance(name, cst.Name) and name.value in _NAMES_LEFT_OUT for name in names)


def _changes(module: cst.Module) -> Iterator[tuple[cst.CSTNode, cst.CSTNode, str]]:
    """Node, what takes its place, and the rule."""
    places = _Places()
    module.visit(places)
    for node in places.nodes:
        for kind, make in _OPERATORS:
            if isinstance(node, kind):
                for changed in make(node):
                    if make is operator_arg_removal and not _is_without_option(node, changed):
                        continue
                    yield node, changed, make.__name__.removeprefix("operator_")


def _is_without_option(call: cst.CSTNode, changed: cst.CSTNode) -> bool:
    """True when an argument that had a name is gone, which may have a default."""
    assert isinstance(call, cst.Call) and isinstance(changed, cst.Call)
    gone = [each for each in call.args if each not in changed.args]
    return len(changed.args) < len(call.args) and all(each.keyword for each in gone)


def mutations_of(path: str, source: str) -> list[Mutation]:
    """All mutations of a module."""
    wrapper = MetadataWrapper(cst.parse_module(source))
    positions = wrapper.resolve(PositionProvider)
    parents = wrapper.resolve(ParentNodeProvider)
    found = []
    for number, (node, _, kind) in enumerate(_changes(wrapper.module)):
        above = [node]
        while (parent := parents.get(above[-1])) is not None:
            above.append(parent)
        statement = next((each for each in above if isinstance(each, cst.BaseSmallStatement)), node)
        begin, end = positions[statement].start.line, positions[statement].end.line
        at_import = isinstance(node, cst.Param) or not any(
            isinstance(each, cst.FunctionDef) and not isinstance(inner, cst.Parameters)
            for inner, each in pairwise(above)
        )
        start = positions[node].start
        found.append(
            Mutation(path, start.line, start.column, number, kind, (begin, end), at_import)
        )
    return found


def mutated(source: str, mutation: Mutation) -> str:
    """The module's text with this change."""
    module = MetadataWrapper(cst.parse_module(source)).module
    for number, (node, changed, _) in enumerate(_changes(module)):
        if number == mutation.number:
            done = module.deep_replace(node, changed)
            assert isinstance(done, cst.Module)
            return done.code
    raise ValueError(f"{mutation.path} has no mutation {mutation.number}: it has changed since")


def difference(source: str, changed: str) -> str:
    """What a change takes out and puts in, line by line."""
    lines = difflib.unified_diff(source.splitlines(), changed.splitlines(), lineterm="", n=0)
    return "\n".join(line for line in list(lines)[2:] if not line.startswith("@@"))


def sample_of(paths: Sequence[Path], root: Path, seed: int, size: int) -> list[Mutation]:
    """`size` mutations of all of these modules, each as likely as any other, by this seed."""
    population: list[Mutation] = []
    for path in sorted(paths):
        name = path.relative_to(root).as_posix()
        population += mutations_of(name, path.read_text(encoding="utf-8"))
    chosen = random.Random(seed).sample(population, min(size, len(population)))
    return sorted(chosen)
