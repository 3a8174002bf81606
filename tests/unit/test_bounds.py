"""The values that an option takes, and their words in messages.

Sizes and times with units of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter, ValidationError

from metrics.common.bounds import (
    EXAMPLES,
    Checked,
    Choice,
    Number,
    Properties,
    Text,
    UnexpectedError,
    Whole,
    amount,
)
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
        with pytest.raises(ValidationError, match="to texts, numbers or booleans"):
            properties.validate_python(given)


def test_a_value_with_another_unit_is_converted() -> None:
    for text, unit, number in (
        ("64 MiB", "bytes", 64 * 1024**2), ("64Mi", "bytes", 64 * 1024**2), ("1k", "bytes", 1000),
        ("1.5 GB", "bytes", 1_500_000_000), ("7 B", "bytes", 7), ("1Ki", "bytes", 1024),
        ("2 MB/s", "bytes per second", 2_000_000), ("2M", "bytes per second", 2_000_000),
        ("30s", "seconds", 30), ("1.5h", "seconds", 5400), ("5 min", "seconds", 300),
        ("5m", "seconds", 300), ("250ms", "seconds", 0.25), ("0.1s", "milliseconds", 100),
        ("20 ms", "milliseconds", 20), ("48h", "milliseconds", 172_800_000),
        ("10k", "records", 10_000),
    ):  # fmt: skip
        found = amount(text, unit)
        assert (found, type(found)) == (number, type(number)), text
    for unit, example in EXAMPLES.items():
        assert amount(example, unit) is not None, example
    for text, unit in (
        ("30", "seconds"), ("30s", "bytes"), ("1 kB", "seconds"), ("-1s", "seconds"),
        ("k", "bytes"), ("1MB/s", "bytes"), ("", "bytes"), ("1e3k", "bytes"),
        ("1 2k", "bytes"), ("1s", "x"),
    ):  # fmt: skip
        assert amount(text, unit) is None, text
