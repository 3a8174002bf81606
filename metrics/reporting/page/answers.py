"""The answer in sentences: what the cluster sustains at each size, and the limiting resource."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metrics.reporting.limit_words import (
    doubt_words,
    doubtful_sizes,
    estimate_words,
    latency_words,
    payload_span_words,
    reason_texts,
    scale_words,
    span_words,
)
from metrics.reporting.proof_words import proven_words, steady_words
from metrics.tables.boundary import AnswerKind, Boundary
from metrics.units import format_count, format_mb_per_s, format_ratio, format_size
from metrics.windows.resource import Resource

_NUMBERS = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
_LIMITING = {
    Resource.REQUEST_HANDLERS.value: "the request handlers were the limiting resource",
    Resource.NETWORK_THREADS.value: "the network threads were the limiting resource",
    Resource.CPU.value: "the CPU was the limiting resource",
    Resource.HEAP.value: "the heap was the limiting resource",
    Resource.MEMORY.value: "the memory was the limiting resource",
    Resource.DISK.value: "the disk was the limiting resource",
    Resource.NETWORK.value: "the network was the limiting resource",
    Resource.REPLICATION.value: "replication fell behind",
    Resource.QUOTA.value: "a quota throttled the producers",
    Resource.CONNECTION.value: "the connections were the limiting resource",
}


@dataclass(frozen=True)
class SizeAnswer:
    """The answer for one message size and one goal.

    Attributes:
        size: the message size with its unit.
        figure, unit: the limit; the figure is empty if there is no answer.
        per_broker: the limit per broker with its unit; empty if the limit is not a payload.
        span: the 90 % interval of the limit with units; empty if the search has none.
        estimate: the best estimate of the limit with units; empty if the search has none.
        proven: what the limit is proven for, and what of it memory took; empty if not known.
        steady: the steady limit and what it rests on, or why there is none; empty if not known.
        latency: latencies of the records at the limit; empty if not known.
        text: the answer in one or two sentences.
        certainty: the certainty of the answer in a sentence.
        is_open: True if the search ended without closing the bracket.
        doubt: the reason why a closed limit is doubtful; empty if it is not.
        notes: further remarks for readers, a sentence each.
        changed: changes of the limit while it was measured, a sentence each.
    """

    size: str
    figure: str
    unit: str
    span: str
    latency: str
    text: str
    certainty: str
    is_open: bool
    doubt: str
    notes: tuple[str, ...]
    per_broker: str = ""
    estimate: str = ""
    proven: str = ""
    steady: str = ""
    changed: tuple[str, ...] = ()


def answer_of(boundary: Boundary, brokers: int) -> SizeAnswer:
    """Put one boundary point into sentences."""
    boundary = boundary.lasting
    figure, unit = _figure(boundary)
    payload = payload_span_words(boundary.mb_per_s_low, boundary.mb_per_s_high)
    payload, load = (
        f"{span.replace(' to ', ' and ')} {unit}" if span else ""
        for span, unit in ((payload, "MB/s"), (span_words(boundary), boundary.along.unit_words))
    )
    return SizeAnswer(
        size=format_size(boundary.message_bytes),
        figure=figure,
        unit=unit,
        span=", ".join(part for part in (payload, load) if part),
        latency=latency_words(*boundary.latencies_ms),
        text=_text(boundary, brokers),
        certainty=_certainty(boundary),
        is_open=boundary.gave_up is not None or boundary.loads[1] is None,
        doubt="" if boundary.gave_up else doubt_words(boundary),
        notes=boundary.notes,
        changed=boundary.changed,
        estimate=_estimate(boundary),
        proven=proven_words(boundary),
        steady=steady_words(boundary),
        per_broker=(
            f"{format_mb_per_s(boundary.mb_per_s_per_broker)} MB/s per broker"
            if figure and boundary.along.grows_payload
            else ""
        ),
    )


def _estimate(boundary: Boundary) -> str:
    """`20.3 MB/s, 81.1 producers`."""
    load, mb_per_s = estimate_words(boundary), boundary.mb_per_s_estimate
    payload = "" if mb_per_s is None else f"{format_mb_per_s(mb_per_s)} MB/s"
    return ", ".join(filter(None, (payload, load and f"{load} {boundary.along.unit_words}")))


def headline(boundaries: Sequence[Boundary], brokers: int) -> str:
    """All sizes in a sentence; empty if there is only one size or no answer."""
    boundaries = [each.lasting for each in boundaries]
    closed = [b for b in boundaries if b.gave_up is None and b.mb_per_s > 0]
    if len(boundaries) < 2 or not closed or not closed[0].along.grows_payload:
        return ""
    low, high = (pick(closed, key=lambda b: b.mb_per_s) for pick in (min, max))
    if low is high:
        range_words = f"{_payload(low)} at {format_size(low.message_bytes)}"
    else:
        range_words = (
            f"from {_payload(low)} at {format_size(low.message_bytes)} "
            f"to {_payload(high)} at {format_size(high.message_bytes)}"
        )
    who, verb = _who(brokers, first=True)
    missing = len(boundaries) - len(closed)
    without = f" {_count(missing, 'size').capitalize()} ended without an answer." if missing else ""
    sizes = doubtful_sizes(boundaries)
    doubtful = f" Doubtful: {sizes}." if sizes else ""
    return f"{who} {verb} {range_words}. {_limiting_resources(closed)}{without}{doubtful}"


def _limiting_resources(closed: Sequence[Boundary]) -> str:
    named = list(dict.fromkeys(b.limited_by or Resource.UNKNOWN.value for b in closed))
    if named == [Resource.UNKNOWN.value]:
        return "The limiting resource is not known."
    if len(named) == 1:
        each = "at every size" if len(closed) > 1 else f"at {format_size(closed[0].message_bytes)}"
        return f"Limiting resource {each}: {named[0]}."
    parts = [
        f"{resource} at "
        + _listed(
            [
                format_size(b.message_bytes)
                for b in closed
                if (b.limited_by or "unknown") == resource
            ]
        )
        for resource in named
    ]
    return f"Limiting resources: {'; '.join(parts)}."


def _figure(boundary: Boundary) -> tuple[str, str]:
    low = boundary.loads[0]
    if not low:
        return "", ""
    if boundary.along.grows_payload:
        return format_mb_per_s(boundary.mb_per_s), "MB/s"
    figure, _, unit = boundary.along.amount(low).partition(" ")
    return figure, unit


def _text(boundary: Boundary, brokers: int) -> str:
    size, over = _with_size(boundary), boundary.loads[1]
    who, verb = _who(brokers)
    why = f": {boundary.gave_up}" if boundary.gave_up else ""
    match AnswerKind(boundary.answer_kind):
        case AnswerKind.NONE:
            return f"{size} no load could be measured{why}."
        case AnswerKind.UPPER_BOUND:
            assert over is not None, "an upper bound is an overload"
            text = f"{size} {who} did not sustain even {_over(boundary)}; {_why(boundary)}."
            return f"{text} No lower load could be measured{why}." if why else text
        case AnswerKind.LOWER_BOUND:
            text = f"{size} {who} {verb} at least {_load(boundary)}{why}."
            return text if over is None else f"{text} At {_over(boundary)} {_why(boundary)}."
        case AnswerKind.LIMIT:
            sustained = f"{size} {who} {verb} {_load(boundary)}"
            return f"{sustained}; at {_over(boundary)} {_why(boundary)}."


def _with_size(boundary: Boundary) -> str:
    """The traffic of a boundary, at the beginning of a sentence."""
    size = format_size(boundary.message_bytes)
    if not boundary.parts:
        return f"With {size} messages"
    named = ", ".join(
        f"{each.part} ({each.np} × {format_size(each.bpm)}, {format_mb_per_s(each.mb_per_s)} MB/s)"
        for each in boundary.parts
    )
    answer = scale_words(boundary)
    return f"{f'{answer}. ' if answer else ''}With the mix of {named}"


def _load(boundary: Boundary) -> str:
    """The sustained load: `14.5 MB/s (4.83 MB/s per broker, 14,500 messages/s, 58 producers)`."""
    load = boundary.along.amount(boundary.loads[0])
    messages = f"{format_count(boundary.mps)} messages/s"
    each = f"{format_mb_per_s(boundary.mb_per_s_per_broker)} MB/s per broker"
    if boundary.along.grows_payload:
        return f"{_payload(boundary)} ({each}, {messages}, {load})"
    return f"{load} ({_payload(boundary)}, {each}, {messages})"


def _over(boundary: Boundary) -> str:
    over = boundary.loads[1]
    assert over is not None, "callers check that there is an overload"
    load = boundary.along.amount(over)
    if boundary.along.grows_payload:
        return f"{format_mb_per_s(boundary.mb_per_s_overloaded)} MB/s ({load})"
    return load


def _why(boundary: Boundary) -> str:
    """The limiting resource, with the first reason of the verdict."""
    limiting = _LIMITING.get(boundary.limited_by or "", "the brokers were overloaded")
    reasons = reason_texts(boundary.overload_reasons)
    return f"{limiting}: {reasons[0]}" if reasons else limiting


def _certainty(boundary: Boundary) -> str:
    low, over = boundary.loads
    trials = _count(boundary.trials, "trial")
    if over is None:
        return f"No overload in {trials}."
    bracket = (
        f"Bracket {format_count(low)} to {boundary.along.amount(over)}, "
        f"{format_ratio(boundary.relative_width)} wide after {trials}"
    )
    if boundary.confidence is None:
        return f"{bracket}."
    sure = format_ratio(boundary.confidence)
    return f"{bracket}; probability that the limit lies inside: {sure}."


def _payload(boundary: Boundary) -> str:
    return f"{format_mb_per_s(boundary.mb_per_s)} MB/s"


def _who(brokers: int, *, first: bool = False) -> tuple[str, str]:
    """The subject of a sentence and its verb, such as `three brokers` and `sustain`."""
    if not brokers:
        who, verb = "the cluster", "sustains"
    else:
        who, verb = _count(brokers, "broker"), "sustains" if brokers == 1 else "sustain"
    return (who[0].upper() + who[1:] if first else who), verb


def _count(count: int, noun: str) -> str:
    number = _NUMBERS[count] if 0 <= count < len(_NUMBERS) else format_count(count)
    return f"{number} {noun}{'' if count == 1 else 's'}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
