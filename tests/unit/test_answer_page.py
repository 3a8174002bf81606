"""The page of a comparison or of a night."""

from __future__ import annotations

from dataclasses import replace

from metrics.reporting.answer_page import AnswerPage, answer_page

PAGE = AnswerPage(
    title="num.io.threads=2 against num.io.threads=1, with 1kB",
    about="comparison 20261123-070000-ab12",
    started_at="2026-11-23T07:00:00Z",
    status="done",
    error=None,
    caveat="",
    sentences=("B takes 20 % less",),
    tables=(("what differs", ("what", "A", "B"), (("num.io.threads", "2", "1"),)),),
    facts=(("broker.version", "4.1.2"),),
    file="compare.json",
)


def test_the_answer_comes_first_and_the_page_loads_nothing() -> None:
    page = answer_page(PAGE)
    assert '<p class="lead">B takes 20 % less.</p>' in page
    assert "<h2>What differs</h2>" in page
    assert '<td class="text">num.io.threads</td><td class="text">2</td>' in page
    assert "<dt>broker.version</dt><dd>4.1.2</dd>" in page
    assert "The run ended" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_an_end_without_an_answer_is_shown() -> None:
    page = answer_page(replace(PAGE, status="no conclusion", error="too few pairs", sentences=()))
    assert "The run ended with the status: no conclusion.</strong> Too few pairs." in page
    assert "There are no figures to compare." in page


def test_names_cannot_break_out_of_the_page() -> None:
    hostile = "<script>alert(1)</script>"
    tables = ((hostile, (hostile,), ((hostile,),)),)
    page = answer_page(replace(PAGE, title=hostile, sentences=(hostile,), tables=tables))
    assert hostile not in page
