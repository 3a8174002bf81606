"""The values that an option takes, and their words in messages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter, ValidationError

from metrics.common.bounds import Checked, Choice, Number, Properties, Text, UnexpectedError, Whole
from metrics.traffic.clients import AcksText


@pytest.mark.parametrize(
    ("check", "taken", "refused"),
    [
        (Whole(1, 9), [1, 5, 9], [0, 10, 1.0, "1", True, None, math.nan]),
        (Whole(0, 1), [0, 1], [False, True]),
        (Number(0, 1), [0, 1, 0.5, 1.0], [-0.1, 1.1, math.nan, math.inf, True, "0", None]),
        (Number(0, 1, above=True), [0.001, 1], [0, 0.0, -1]),
        (Number(0, 1, below=True), [0, 0.999], [1, 1.0]),
        (Text(r"[a-z]+", "letters"), ["abc"], ["", "abc1", "abc\n", 5, None]),
        (Choice(("np", "rate")), ["np", "rate"], ["", "n", "NP", None, 0, "np,rate"]),
        (AcksText(), [0, 1, -1, "0", "1", "-1", "all"], [2, "2", "ALL", True, False, None, [1]]),
    ],
)
def test_a_check_accepts_only_expected_values(
    check: Checked, taken: list[Any], refused: list[Any]
) -> None:
    assert [value for value in taken if not check.accepts(value)] == []
    assert [value for value in refused if check.accepts(value)] == []


def test_pydantic_refuses_in_the_words_of_the_check() -> None:
    adapter = TypeAdapter(Annotated[str, Choice(("np", "rate"))])
    assert adapter.validate_python("rate") == "rate"
    with pytest.raises(ValidationError) as caught:
        adapter.validate_python("rates")
    (problem,) = caught.value.errors()
    assert isinstance(problem["ctx"]["error"], UnexpectedError)
    assert problem["ctx"]["error"].expected == "np or rate"


def test_kafkas_properties_are_text_as_kafka_reads_it() -> None:
    properties: TypeAdapter[Mapping[str, str]] = TypeAdapter(Properties)
    given: Any = {"a": 1_000, "b": True, "c": False, "d": 0.5, "e": "zstd", "f": -1}
    taken = properties.validate_python(given)
    assert list(taken.values()) == ["1000", "true", "false", "0.5", "zstd", "-1"]
    assert properties.validate_python({}) == {}
    for given in (None, "a=1", ["a"], 5):
        with pytest.raises(ValidationError, match="a map of Kafka property names to values"):
            properties.validate_python(given)
    for given in ({"a": None}, {"a": [1]}, {"a": {"b": 1}}, {1: "b"}):
        with pytest.raises(ValidationError, match="with a text, number or boolean each"):
            properties.validate_python(given)
