"""docs/configuration.md lists exactly the keys that exist, with their real defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from jobs.config import Cluster, Goal, Workload
from jobs.config.fields import all_keys, model_at
from jobs.config.suite import Suite
from metrics.common.bounds import Checked

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
MODELS = (Cluster, Workload, Goal, Suite)


def documented(section: str) -> dict[str, tuple[str, str]]:
    """Key → (value, default) of each row of a section of the page."""
    text = PAGE.read_text(encoding="utf-8").split(f"## {section}", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): (row[1], row[2]) for row in rows}


def checks(annotation: Any) -> Iterator[Checked]:
    """The checks of a value, without those of the items of a list or map."""
    if get_origin(annotation) in (tuple, Mapping):
        return
    if isinstance(annotation, Checked):
        yield annotation
    for part in (*get_args(annotation), *getattr(annotation, "__metadata__", ())):
        yield from checks(part)


def default_text(default: Any) -> str:
    if default is None or default in ("", {}, ()):
        return "–"
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:.12g}" if isinstance(default, (int, float)) else str(default)


@pytest.mark.parametrize("model", MODELS)
def test_the_page_lists_exactly_the_keys(model: type[BaseModel]) -> None:
    assert list(documented(model.__name__)) == [".".join(path) for path in all_keys(model)]


@pytest.mark.parametrize("model", MODELS)
def test_the_page_gives_the_real_defaults(model: type[BaseModel]) -> None:
    for key, (_, shown) in documented(model.__name__).items():
        path = key.split(".")
        parent = model_at(model, path[:-1])
        assert parent is not None
        field = parent.model_fields[path[-1]]
        if key == "name":
            continue  # the loader takes it from the file's name
        real = "required" if field.is_required() else field.get_default(call_default_factory=True)
        assert shown == default_text(real), key


@pytest.mark.parametrize("model", MODELS)
def test_the_page_gives_the_real_bounds(model: type[BaseModel]) -> None:
    compared = 0
    for key, (shown, _) in documented(model.__name__).items():
        path = key.split(".")
        parent = model_at(model, path[:-1])
        assert parent is not None
        field = parent.model_fields[path[-1]]
        found = [*(each for each in field.metadata if isinstance(each, Checked))]
        found += checks(field.annotation)
        if len(found) == 1:
            assert shown == found[0].expected(), key
            compared += 1
    assert compared >= 4, "the page's columns have moved"
