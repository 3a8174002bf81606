"""The page of a comparison or of a night: sentences and tables in one file that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metrics.reporting.templating import render

Shown = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""A table: its title, its columns and its rows."""


@dataclass(frozen=True)
class AnswerPage:
    """What the page says.

    Attributes:
        title: what was asked.
        about: the run in a few words.
        started_at: when it began; ISO 8601, UTC.
        status: how it ended.
        error: the sentence that the user was shown, or None.
        caveat: what a reader of the figures must know; empty for nothing.
        sentences: the answer, the first sentence first.
        tables: what it rests on.
        facts: the environment, as (name, value).
        file: beside the page, for programs.
    """

    title: str
    about: str
    started_at: str
    status: str
    error: str | None
    caveat: str
    sentences: tuple[str, ...]
    tables: tuple[Shown, ...]
    facts: tuple[tuple[str, str], ...]
    file: str


def answer_page(page: AnswerPage) -> str:
    """The page as HTML."""
    return render("answer.html", page=page)
