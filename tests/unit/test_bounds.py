"""The values that an option takes, in the words of messages, and the names that Kafka has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter, ValidationError

from metrics.common.bounds import (
    OURS,
    Checked,
    Choice,
    Kafka,
    Number,
    Properties,
    Text,
    UnexpectedError,
    Whole,
    kafka_properties,
)
from metrics.traffic.clients import AcksText


def test_an_expectation_is_a_noun_phrase() -> None:
    expectations: list[tuple[Checked, str]] = [
        (Whole(1, 9), "a whole number from 1 to 9"),
        (Whole(0, 100, "groups"), "a whole number of groups from 0 to 100"),
        (Number(0, 1), "a number from 0 to 1"),
        (Number(0, 1, above=True), "a number above 0 up to 1"),
        (Number(0, 1, below=True), "a number from 0 to below 1"),
        (Number(0, 1, above=True, below=True), "a number above 0 to below 1"),
        (Number(0.05, 60_000_000, "seconds"), "a number of seconds from 0.05 to 60000000"),
        (Text("a+", "some letters a"), "some letters a"),
        (Choice(("np",)), "np"),
        (Choice(("np", "rate")), "np or rate"),
        (Choice(("np", "rate", "partitions")), "np, rate or partitions"),
        (Whole(1, 9, also=-1), "a whole number from 1 to 9, or -1"),
        (AcksText(), "0, 1 or all"),
    ]
    for check, expected in expectations:
        assert check.expected() == expected


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


# --- the names that Kafka has -----------------------------------------------------


@dataclass(frozen=True)
class Options:
    """Some options."""

    linger_ms: float
    in_flight: Annotated[int, Kafka("max.in.flight.requests.per.connection")]
    client: Annotated[str, OURS]
    rate: Annotated[Annotated[float, Whole(0, 1)] | None, "some other mark", OURS] = None
    retries: Annotated[int, Whole(0, 5)] = 5


def test_an_option_has_kafkas_name_by_its_own_or_by_its_mark() -> None:
    assert kafka_properties(Options) == {
        "linger_ms": "linger.ms",
        "in_flight": "max.in.flight.requests.per.connection",
        "retries": "retries",
    }
