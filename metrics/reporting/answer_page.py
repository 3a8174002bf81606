"""The HTML page of a comparison or of a night: one self-contained file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metrics.reporting.templating import render

AnswerTable = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""A table as its title, its columns and its rows."""


@dataclass(frozen=True)
class AnswerPage:
    """The content of the page.

    Attributes:
        title: the question.
        about: a short description of the run.
        started_at: start of the run; ISO 8601, UTC.
        status: how the run ended.
        error: the error message that the user saw, or None.
        caveat: a restriction that readers of the figures must know, or empty.
        sentences: the answer; the first sentence is the most important.
        tables: the figures behind the answer.
        facts: the environment, as (name, value).
        file: name of the JSON file beside the page.
    """

    title: str
    about: str
    started_at: str
    status: str
    error: str | None
    caveat: str
    sentences: tuple[str, ...]
    tables: tuple[AnswerTable, ...]
    facts: tuple[tuple[str, str], ...]
    file: str


def answer_page(page: AnswerPage) -> str:
    """Render the page as HTML."""
    return render("answer.html", page=page)
