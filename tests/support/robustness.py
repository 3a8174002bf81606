"""Unusual input for tests of robustness, and the check that the product answers it soon."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import strategies as st

from metrics.common.errors import RedlineError
from metrics.reporting.summary import RunSummary
from metrics.tables.boundary import make_boundary
from metrics.traffic.axes import NP
from search.model import Bracket
from tests.support.rows import traffic

SLOW_S = 2.0
"""CPU time above which an answer counts as too slow [s]."""
CONF = Path(__file__).parents[2] / "conf"
SUMMARY = RunSummary(
    "run-1", "a", "b", "c", "w", "default",
    (make_boundary(Bracket(720, 756), NP, traffic(1, 1_000, 250.0, brokers=3), trials=4),),
    3, replication_factor=3, environment={"broker.version": "4.1.2"},
)  # fmt: skip

unusual_texts = st.sampled_from(
    ["", "null", "~", "[]", "{}", "[[]]", ".nan", "-.inf", "1e400", "-1", "0", "9" * 400, "true",
     "!!bool maybe", "!!timestamp foo", "!!binary x", "&a [*a]", "*b", "'", '"', '"\\ud800"',
     '"\\0"', "\x00", "2026-11-22", "0x1F", "1_000", "é", "- x", "a: b", "? x", "|", ">", "%YAML",
     "[" * 300, "{" * 300, "<<: *x", "../../etc", "env:HOME", "file:/", "\u2028", "\t"]
)  # fmt: skip
unusual_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner,
                                                                max_size=3),
    max_leaves=6,
)  # fmt: skip


def few_or_many(few: int, many: int) -> pytest.MarkDecorator:
    """Run a test with a few examples, the same each time, and in `make test-long` with many."""
    return pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.long)])


def assert_ends_soon(action: Callable[[], object], *excused: type[Exception]) -> None:
    """Check that an action returns, or raises an error of the product with a message, soon.

    Args:
        excused: further exceptions that the action may raise.
    """
    expected: tuple[type[Exception], ...] = (RedlineError, *excused)
    begun_s, message = time.thread_time(), "an answer"
    try:
        action()
    except expected as error:
        message = str(error) or type(error).__name__
    assert message.strip()
    assert time.thread_time() - begun_s < SLOW_S
