"""Searches alone, without the trial at the end that looks for a change of the limit.

Tests that count trials are about the search itself; `tests/unit/test_search_checking.py` is about
that trial.
"""

from __future__ import annotations

from functools import partial

from search.loop import run_search as checked_search
from search.simulate import run_on as checked_on

run_search = partial(checked_search, check_for_change=False)
run_on = partial(checked_on, check_for_change=False)
