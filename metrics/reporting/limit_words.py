"""Sentences about the certainty of a limit and the latency there, for terminals and pages.

Sentences about what a limit is proven for, and what of it memory took.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence

from metrics.judging.disk_proof import DiskProof
from metrics.tables.boundary import AnswerKind, Boundary
from metrics.traffic.axes import ScaleAxis
from metrics.units import (
    format_duration,
    format_estimate,
    format_mb_per_s,
    format_ms,
    format_ratio,
    format_size,
    format_span,
    format_volume,
)
from metrics.windows.use import Resource
from search.model import LEVEL

LINE_WIDTH, LINE_WIDTH_MAX = 74, 120
"""Width of a sentence below a limit on a terminal of 80 columns, and of the longest [columns]."""
REASONS_MAX = 8
"""Maximum number of reasons that a verdict lists; each of a hundred brokers can give one."""
_READINGS = {
    Resource.DISK.value: ("flush", "disk"),
    Resource.HEAP.value: ("garbage collection", "heap"),
    Resource.CPU.value: ("machine",),
    Resource.REPLICATION.value: ("followers",),
}
"""Resource → words of the clause that shows it, where the first clause shows something else."""
_CLAUSE_END = re.compile(r"(?:, and |, | while | with CPU |; )(?![^(]*\))")
_ASIDE = re.compile(r" \([^)]*\)")
_BROKER = re.compile(r"broker \d+: ")


def bound_words(boundary: Boundary) -> str:
    """The limiting resource, the broker and the reading that shows it, on one line.

    Such as `bound by disk: broker 2: flushes took 87% of the handlers' time (0.5 ms each)`. The
    whole evidence is in the report.
    """
    resource = boundary.limited_by or Resource.UNKNOWN.value
    named = "an unknown resource" if resource == Resource.UNKNOWN.value else resource
    reading = reading_words(boundary)
    return _shortened(f"bound by {named}: {reading}" if reading else f"bound by {named}")


def reading_words(boundary: Boundary) -> str:
    """The broker and the reading that shows what limits it; empty where nothing shows it."""
    if not boundary.evidence:
        return next(iter(reason_texts(boundary.overload_reasons)), "")
    resource = boundary.limited_by or Resource.UNKNOWN.value
    text = " ".join(boundary.evidence.removeprefix(f"{resource}: ").split())
    broker = _BROKER.match(text)
    where = broker.group() if broker else ""
    clauses = _CLAUSE_END.split(text[len(where) :])
    shown = (each for each in clauses if any(w in each for w in _READINGS.get(resource, ("",))))
    reading = next(shown, clauses[0]).removeprefix("followers fell behind: ")
    return where + reading.replace("of their time", "of the handlers' time")


def _shortened(text: str) -> str:
    short = text if len(text) <= LINE_WIDTH else _ASIDE.sub("", text)
    return textwrap.shorten(short, LINE_WIDTH_MAX, placeholder=" …")


def reason_texts(reasons: Sequence[str]) -> tuple[str, ...]:
    """Reasons for people, without the names of their indicators."""
    parts = [reason.partition(": ") for reason in reasons]
    return tuple(
        text if colon and name.isidentifier() else whole
        for (name, colon, text), whole in zip(parts, reasons, strict=True)
    )


def first_reasons(reasons: Sequence[str]) -> tuple[str, ...]:
    """The first reasons, and the number of further ones."""
    more = len(reasons) - REASONS_MAX
    return (*reasons[:REASONS_MAX], *([f"and {more} more"] if more > 0 else []))


def span_words(boundary: Boundary) -> str:
    """The interval on the axis, such as `44 to 50`; empty if the search has none."""
    interval, axis = boundary.interval, boundary.along
    if interval is None:
        return ""
    if isinstance(axis, ScaleAxis):
        return format_span(axis.shown(interval.low), axis.shown(interval.high), 100)
    return format_span(interval.low, interval.high)


def estimate_words(boundary: Boundary) -> str:
    """The best estimate of the limit on the axis, such as `81.1`; empty if there is none."""
    if boundary.scale_estimate is not None:
        return f"{boundary.scale_estimate:.3g}"
    return "" if boundary.load_estimate is None else format_estimate(boundary.load_estimate)


def open_words(boundary: Boundary) -> str:
    """The answer without a limit, and why: `at least 37.0 MB/s (150 producers); the generator was
    the limit: 2 cores of 2 busy`; empty for a limit.
    """
    if boundary.answer_kind == AnswerKind.LIMIT:
        return ""
    found = answer_words(boundary, load_words)
    if boundary.gave_up is None:
        return found
    # Reasons of older versions have the bound in them.
    is_stated = boundary.gave_up.startswith(("at least ", "no load "))
    return boundary.gave_up if is_stated else f"{found}; {boundary.gave_up}"


def answer_words(boundary: Boundary, words: Callable[[Boundary, int, float | None], str]) -> str:
    """The limit, or what is known of it: `at least 37.0 MB/s`.

    Args:
        words: boundary, load and payload [MB/s] → the load in words.
    """
    low, over = boundary.loads
    match AnswerKind(boundary.answer_kind):
        case AnswerKind.NONE:
            return "no load could be measured"
        case AnswerKind.UPPER_BOUND:
            return f"less than {words(boundary, over or 0, boundary.mb_per_s_overloaded)}"
        case AnswerKind.LOWER_BOUND:
            return f"at least {words(boundary, low, boundary.mb_per_s)}"
        case AnswerKind.LIMIT:
            return words(boundary, low, boundary.mb_per_s)


def load_words(boundary: Boundary, load: int, mb_per_s: float | None) -> str:
    """A load with its payload, such as `37.0 MB/s (150 producers)`."""
    amount = boundary.along.amount(load)
    if mb_per_s is None or not boundary.along.grows_payload:
        return amount
    return f"{format_mb_per_s(mb_per_s)} MB/s ({amount})"


def payload_span_words(low: float | None, high: float | None) -> str:
    """An interval of payloads [MB/s], such as `11.0 to 12.5`; empty if it is not known."""
    if low is None or high is None:
        return ""
    return f"{format_mb_per_s(low)} to {format_mb_per_s(high)}"


def latency_words(p50_ms: float | None, p99_ms: float | None, p999_ms: float | None) -> str:
    """Latencies as text, such as `p50 3.10 ms, p99 12.0 ms, p99.9 40.0 ms`; empty if unknown."""
    named = {"p50": p50_ms, "p99": p99_ms, "p99.9": p999_ms}
    return ", ".join(
        f"{name} {format_ms(value)} ms" for name, value in named.items() if value is not None
    )


def doubt_words(boundary: Boundary) -> str:
    """The reason why a limit is doubtful, a sentence without its full stop; empty if it is not."""
    if not boundary.doubtful:
        return ""
    interval = boundary.interval
    if interval is None:
        share = format_ratio(boundary.confidence)
        return f"the probability that the limit lies inside the bracket is only {share}"
    return (
        f"its {format_ratio(LEVEL)} interval, {span_words(boundary)} "
        f"{boundary.along.unit_words}, is "
        f"{format_ratio(interval.relative_width)} wide; the goal accepts at most "
        f"{format_ratio(boundary.interval_max)} (search.interval_max)"
    )


def doubtful_sizes(boundaries: Sequence[Boundary]) -> str:
    """The sizes whose limit is doubtful, such as `100 B, 1 kB`; empty if there is none."""
    return ", ".join(
        format_size(each.message_bytes)
        for each in boundaries
        if each.doubtful and each.gave_up is None
    )


def proven_words(boundary: Boundary) -> str:
    """What the sustained load is proven for; empty where no trial sustained it.

    Such as `proven for 30 s, 1.9 GB; memory took 1.6 GB of it, full after 95 s at this rate`.
    """
    if boundary.proven_s is None:
        return ""
    proof = DiskProof(
        boundary.proven_on_disk,
        boundary.proven_s,
        boundary.proven_bytes,
        boundary.memory_bytes,
        boundary.memory_full_s,
        why=boundary.proof_note,
    )
    if boundary.failed_after_s is None:
        return proof_words(proof)
    payload, lasted = format_mb_per_s(boundary.mb_per_s), format_duration(boundary.failed_after_s)
    return f"{proof_words(proof)}; measured: {payload} MB/s for {lasted}"


def proof_words(proof: DiskProof) -> str:
    """What a load is proven for, see `proven_words`."""
    size = proof.taken_bytes
    on_disk = " on disk" if proof.on_disk else ""
    amount = "" if size is None else f", {format_volume(size)}"
    parts = [f"proven{on_disk} for {format_duration(proof.duration_s)}{amount}"]
    if proof.on_disk is False and proof.absorbed_bytes is not None:
        full = "" if proof.full_s is None else f", full after {proof.full_s:,.0f} s at this rate"
        parts.append(f"memory took {format_volume(proof.absorbed_bytes)} of it{full}")
    if proof.note:
        parts.append(proof.note)
    return "; ".join(parts)


def steady_words(boundary: Boundary) -> str:
    """The steady limit and what it rests on, or why there is none; empty where nothing is known.

    Such as `steady: 9.6 MB/s, proven on disk for 6 min, 23 GB`.
    """
    failed = ""
    if boundary.failed_after_s is not None and boundary.proven_s is None:
        payload = format_mb_per_s(boundary.mb_per_s_overloaded)
        failed = f"measured: {payload} MB/s for {format_duration(boundary.failed_after_s)}"
    if boundary.steady_load is None:
        why = "; ".join(filter(None, (boundary.steady_note, failed)))
        return f"steady: not proven; {why}" if why else ""
    rate = boundary.steady_mb_per_s
    limit = boundary.along.amount(round(boundary.steady_load))
    payload = limit if rate is None else f"{format_mb_per_s(rate)} MB/s ({limit})"
    size = boundary.steady_bytes
    amount = "" if size is None else f", {format_volume(size)}"
    lasted = format_duration(boundary.steady_s or 0.0)
    proof = f"steady: {payload}, proven on disk for {lasted}{amount}"
    return "; ".join(filter(None, (proof, boundary.steady_note, failed)))
