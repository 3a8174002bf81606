"""Names that programs read stay: keys, options, columns, events, exit codes, views."""

from __future__ import annotations

import pytest

from tests.support.frozen import frozen, keys_of, names

NAMES = names()


@pytest.mark.parametrize("kind", sorted(NAMES))
def test_a_published_name_stays(kind: str) -> None:
    gone = sorted(set(frozen()[kind]) - set(NAMES[kind]))
    assert not gone, f"these {kind} were published; name them as before"


@pytest.mark.parametrize("kind", sorted(NAMES))
def test_a_new_name_is_published_on_purpose(kind: str) -> None:
    new = sorted(set(NAMES[kind]) - set(frozen()[kind]))
    assert not new, f"new {kind}: `python -m tests.support.frozen` publishes them"


def test_keys_of_a_document_are_paths() -> None:
    document = {"a": 1, "b": [{"c": 2}, {"d": {"e": 3}}]}
    assert keys_of(document) == {"a", "b", "b[].c", "b[].d", "b[].d.e"}
