"""Sections of a file that are plain dataclasses: checked as strictly as other models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ValidationError

from jobs.config import Goal, Workload, load_goal, load_workload
from jobs.config.base import ConfigModel, FileSection, section_model
from jobs.config.problems import config_error
from jobs.config.source import parse_map
from jobs.config.suite import Suite, load_suite
from metrics.common.bounds import Choice, Whole
from metrics.common.errors import ConfigError
from metrics.judging.thresholds import Indicators
from metrics.traffic.producer import ProducerOptions
from search.budget import Budget


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """A section.

    Attributes:
        books: number of books.
        order: key of their order.
        sorts: sort of the books.
        names: name by author.
    """

    books: Annotated[int, Whole(0, 9, "books")]
    order: Literal["title", "author"] = "title"
    sorts: Annotated[str, Choice(("novels", "poems"))] = "novels"
    names: Mapping[str, str] = field(default_factory=dict)

    def require_consistent(self) -> None:
        if self.books == 0 and self.names:
            raise ValueError("books is 0 with names; expected none; remove them")


class Room(ConfigModel):
    """A file with a required section, one with a default, and an optional one."""

    shelf: Annotated[Shelf, FileSection()]
    other: Annotated[Shelf, FileSection()] = Shelf(books=1)
    third: Annotated[Shelf, FileSection()] | None = None


def room(text: str) -> Room:
    """Read a file of a room as clusters, workloads and goals are read."""
    source = parse_map(text, "room.yaml")
    try:
        return Room.model_validate(source.data)
    except ValidationError as error:
        raise config_error(error, source, Room) from None


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        room(text)
    return str(caught.value)


def test_a_section_is_the_dataclass_itself_with_its_defaults() -> None:
    found = room("shelf: {books: 3, order: author}")
    assert found.shelf == Shelf(books=3, order="author")
    assert type(found.shelf) is Shelf
    assert (found.other, found.third) == (Shelf(books=1), None)
    assert room("{shelf: {books: 3}, third: {books: 4}}").third == Shelf(books=4)


def test_a_mutable_default_is_created_for_each_section() -> None:
    first, second = (room("shelf: {books: 3}").shelf for _ in range(2))
    assert first.names == second.names == {}
    assert first.names is not second.names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "shelf:\n  books: 3\n  boks: 4\n",
            ("line 3: shelf.boks is an unknown key; the nearest known key is books; rename it"),
        ),
        (
            "shelf:\n  books: 3\nthird:\n  books: 1\n  zzz: 4\n",
            (
                "line 5: third.zzz is an unknown key; expected one of books, order, sorts, "
                "names; rename or remove it"
            ),
        ),
        (
            "shelf: {books: 3}\norder: author\n",
            "line 2: order is an unknown key; the nearest known key is other; rename it",
        ),
        (
            "shelf:\n  order: author\n",
            (
                "line 1: shelf.books is missing; expected a whole number of books from 0 "
                "to 9; add it"
            ),
        ),
        (
            "shelf:\n  books: 10\n",
            ("line 2: shelf.books is 10; expected a whole number of books from 0 to 9; correct it"),
        ),
        (
            "shelf: {books: 3}\nother:\n  books: 3\n  sorts: maps\n",
            (
                'line 4: other.sorts is "maps", a text; expected novels or poems; correct '
                "it, or leave it out for the default novels"
            ),
        ),
        (
            "shelf:\n  books: 3\n  order: size\n",
            (
                'line 3: shelf.order is "size", a text; expected title or author; correct '
                "it, or leave it out for the default title"
            ),
        ),
        ("shelf: 3\n", "line 1: shelf is 3; expected a map of keys and values"),
        ("shelf: null\n", "line 1: shelf is null; expected a map of keys and values"),
        ("shelf: [3]\n", "line 1: shelf is a list; expected a map of keys and values"),
        (
            "shelf:\n  books: 0\n  names: {a: b}\n",
            "line 1: shelf: books is 0 with names; expected none; remove them",
        ),
    ],
)
def test_a_wrong_section_is_refused_with_its_place_and_its_options(text: str, words: str) -> None:
    assert refusal(text).startswith(f"room.yaml, {words}")


def test_several_problems_of_a_section_are_in_one_message() -> None:
    words = refusal("shelf: {books: x, order: 5, boks: 1}").splitlines()
    assert [line.split(" ")[3] for line in words] == ["shelf.books", "shelf.order", "shelf.boks"]


def test_consistency_is_checked_only_when_a_file_is_read() -> None:
    assert Shelf(books=0, names={"a": "b"}).books == 0
    with pytest.raises(ConfigError, match="exactly one of rate_bytes_per_s"):
        load_workload("demo", ["workload.producer.rate_bytes_per_s=null"])
    assert ProducerOptions().rate_bytes_per_s is None


def sections(model: type[BaseModel], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of all sections of a model that are dataclasses."""
    found = []
    for name, item in model.model_fields.items():
        kinds = {item.annotation, *getattr(item.annotation, "__args__", ())}
        kinds |= {getattr(kind, "__origin__", kind) for kind in kinds}
        for kind in kinds:
            if is_dataclass(kind):
                found.append((*above, name))
            elif isinstance(kind, type) and issubclass(kind, BaseModel):
                found += sections(kind, (*above, name))
    return sorted(found)


def test_these_sections_are_dataclasses() -> None:
    assert sections(Workload) == [
        ("consumers",),
        ("payload",),
        ("producer",),
        ("topic",),
        ("trial",),
    ]
    assert sections(Goal) == [("indicators",), ("search", "budget"), ("validity",)]
    assert sections(Suite) == [("cases", "noise"), ("noise",)]


@pytest.mark.parametrize(
    "path",
    [
        *(("workload", *path) for path in sections(Workload)),
        *(("goal", *path) for path in sections(Goal)),
    ],
    ids=".".join,
)
def test_each_of_them_refuses_an_unknown_key_with_its_options(path: tuple[str, ...]) -> None:
    given = f"{'.'.join(path)}.zzz=5"
    with pytest.raises(ConfigError) as caught:
        load_workload("demo", [given]) if path[0] == "workload" else load_goal("default", [given])
    below = ".".join(path[1:])
    words = str(caught.value)
    assert words.startswith(f"--set {path[0]}.{below}.zzz: {below}.zzz is an unknown key; ")
    held: Any = load_workload("demo") if path[0] == "workload" else load_goal("default")
    for name in path[1:]:
        held = getattr(held, name)
    assert f"expected one of {', '.join(item.name for item in fields(held))};" in words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("noise: {zzz: 1}\n", "line 1: noise.zzz is an unknown key; expected one of cv, weight;"),
        (
            "noise: {wieght: 1}\n",
            "line 1: noise.wieght is an unknown key; the nearest known key is weight;",
        ),
        ("noise: {cv: 0}\n", "line 1: noise.cv is 0; expected a number above 0 up to 2"),
    ],
)
def test_the_noise_of_a_suite_is_checked_in_the_same_way(
    tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "nights.yaml"
    path.write_text(text + "cases: [{name: a, limit: 100}]\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_suite(str(path))
    assert f"{path}, {words}" in str(caught.value)


@pytest.mark.parametrize("kind", [ProducerOptions, Indicators, Budget, Shelf])
def test_the_model_of_a_section_has_its_fields_and_is_made_once(kind: Any) -> None:
    model = section_model(kind)
    assert list(model.model_fields) == [item.name for item in fields(kind)]
    assert section_model(kind) is model
