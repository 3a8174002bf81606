"""The answer of a search or of a run at fixed loads, as text for the terminal, the report and
messages.

The answer of a search has at most five lines for each message size. The evidence follows the lines
of the answer. The terminal, the report and messages show the same lines in the same order. The
answer about a fixed load states whether the cluster sustains the load, and the unused share of the
resource with the highest use.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from metrics.judging.disk_proof import DiskProof
from metrics.tables.boundary import AnswerKind, Boundary
from metrics.traffic.axes import MESSAGE_BYTES, ScaleAxis
from metrics.trial.trial import ALL_BROKERS, Trial
from metrics.units import (
    AT_LEVEL,
    format_count,
    format_counted,
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
from search.model import LEVEL, Verdict

LINE_WIDTH, LINE_WIDTH_MAX = 74, 120
"""Widths of a sentence [columns]. A sentence that is wider than the first value is shortened; a
shortened sentence is at most as wide as the second value."""
REASONS_MAX = 8
"""Maximum number of reasons that are listed for a verdict. Without a maximum, the list would be
long on a large cluster, because every broker can add a reason."""
_READINGS = {
    Resource.DISK.value: ("flush", "disk"),
    Resource.HEAP.value: ("garbage collection", "heap"),
    Resource.CPU.value: ("machine",),
    Resource.REPLICATION.value: ("followers",),
}
"""Resource → words. If a clause of the evidence contains one of these words, the clause shows the
reading of the resource. For a resource that is not in this map, the first clause of the evidence is
taken as the reading."""
_CLAUSE_END = re.compile(r"(?:, and |, | while | with CPU |; )(?![^(]*\))")
_ASIDE = re.compile(r" \([^)]*\)")
_BROKER = re.compile(r"broker \d+: ")


def bound_words(boundary: Boundary) -> str:
    """The limiting resource, with the broker and the most important reading, on one line.

    Example: `bound by disk: broker 2: flushes took 87% of the handlers' time (0.5 ms each)`. The
    report has the whole evidence.
    """
    resource = boundary.limited_by or Resource.UNKNOWN.value
    named = "an unknown resource" if resource == Resource.UNKNOWN.value else resource
    reading = reading_words(boundary)
    return _shortened(f"bound by {named}: {reading}" if reading else f"bound by {named}")


def reading_words(boundary: Boundary) -> str:
    """The broker and the reading that show the limiting resource; empty if there is no evidence."""
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
    """The reasons. If a reason begins with the name of an indicator, the name is removed."""
    parts = [reason.partition(": ") for reason in reasons]
    return tuple(
        text if colon and name.isidentifier() else whole
        for (name, colon, text), whole in zip(parts, reasons, strict=True)
    )


def first_reasons(reasons: Sequence[str]) -> tuple[str, ...]:
    """The first `REASONS_MAX` reasons, and a line with the number of further reasons."""
    more = len(reasons) - REASONS_MAX
    return (*reasons[:REASONS_MAX], *([f"and {more} more"] if more > 0 else []))


def span_words(boundary: Boundary) -> str:
    """The interval of the limit on the axis, such as `44 to 50`; empty if there is no interval."""
    interval, axis = boundary.interval, boundary.along
    if interval is None:
        return ""
    if isinstance(axis, ScaleAxis):
        return format_span(axis.shown(interval.low), axis.shown(interval.high), 100)
    return format_span(interval.low, interval.high)


def estimate_words(boundary: Boundary) -> str:
    """The best estimate of the limit on the axis, such as `81.1`; empty if there is no estimate."""
    if boundary.scale_estimate is not None:
        return f"{boundary.scale_estimate:.3g}"
    return "" if boundary.load_estimate is None else format_estimate(boundary.load_estimate)


def open_words(boundary: Boundary) -> str:
    """For a search that found no limit: the bound of the limit, and why the search ended.

    The text is empty if the search found a limit. Example: `at least 37.0 MB/s (150 producers); the
    generator was the limit: it used 2 of 2 cores`.
    """
    if boundary.answer_kind == AnswerKind.LIMIT:
        return ""
    return "; ".join(filter(None, (answer_words(boundary, load_words), _end_of(boundary))))


def _end_of(boundary: Boundary) -> str:
    """The reason why the search ended. A bound of the limit, such as `at least 37 MB/s`, is removed
    from the start of the reason.

    The text is empty if the reason is not known.
    """
    why = boundary.gave_up or ""
    # Older versions of the tables store the bound before the reason.
    is_stated = why.startswith(("at least ", "no load could be measured"))
    return why.partition("; ")[2] if is_stated else why


def answer_words(boundary: Boundary, words: Callable[[Boundary, int, float | None], str]) -> str:
    """The limit in words. If the search found only a bound of the limit, the result is this bound,
    such as `at least 37.0 MB/s`.

    Args:
        boundary: the boundary point.
        words: function that returns a load in words; its arguments are the boundary point, the load
            and the payload rate [MB/s].
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
    """A load with its payload rate, such as `37.0 MB/s (150 producers)`."""
    amount = boundary.along.amount(load)
    if mb_per_s is None or not boundary.along.grows_payload:
        return amount
    return f"{format_mb_per_s(mb_per_s)} MB/s ({amount})"


def payload_span_words(low: float | None, high: float | None) -> str:
    """An interval of payload rates [MB/s], such as `11.0 to 12.5`; empty if an end is not known."""
    if low is None or high is None:
        return ""
    return f"{format_mb_per_s(low)} to {format_mb_per_s(high)}"


def latency_words(p50_ms: float | None, p99_ms: float | None, p999_ms: float | None) -> str:
    """The known latencies, such as `p50 3.10 ms, p99 12.0 ms, p99.9 40.0 ms`."""
    named = {"p50": p50_ms, "p99": p99_ms, "p99.9": p999_ms}
    return ", ".join(
        f"{name} {format_ms(value)} ms" for name, value in named.items() if value is not None
    )


def doubt_words(boundary: Boundary) -> str:
    """The reason why a limit is doubtful, as a sentence without a full stop; empty if it is not
    doubtful.
    """
    if not boundary.doubtful:
        return ""
    interval = boundary.interval
    if interval is None:
        share = format_ratio(boundary.confidence)
        return f"the probability that the limit is inside of the bracket is only {share}"
    return (
        f"the limit's {format_ratio(LEVEL)} interval, {span_words(boundary)} "
        f"{boundary.along.unit_words}, is "
        f"{format_ratio(interval.relative_width)} wide; the goal accepts at most "
        f"{format_ratio(boundary.interval_max)} (search.interval_max)"
    )


def doubtful_sizes(boundaries: Sequence[Boundary]) -> str:
    """The message sizes whose limit is doubtful, such as `100 B, 1 kB`; empty if no limit is
    doubtful.
    """
    return ", ".join(
        format_size(each.message_bytes)
        for each in boundaries
        if each.doubtful and each.gave_up is None
    )


def proven_words(boundary: Boundary) -> str:
    """The duration and volume of the longest sustained trial; empty if no trial sustained the load.

    Example: `proven for 30 s, 1.9 GB; at this rate, memory took 1.6 GB of it and is full
    after 95 s`.
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
    """The proven duration and the proven volume of a load, in the words of `proven_words`."""
    size = proof.taken_bytes
    on_disk = " on disk" if proof.on_disk else ""
    amount = "" if size is None else f", {format_volume(size)}"
    parts = [f"proven{on_disk} for {format_duration(proof.duration_s)}{amount}"]
    if proof.on_disk is False and proof.absorbed_bytes is not None:
        full = "" if proof.full_s is None else f" and is full after {proof.full_s:,.0f} s"
        parts.append(f"at this rate, memory took {format_volume(proof.absorbed_bytes)} of it{full}")
    if proof.note:
        parts.append(proof.note)
    return "; ".join(parts)


def steady_words(boundary: Boundary) -> str:
    """The steady limit with its proof, or the reason why there is no proof; empty if neither is
    known.

    Example: `steady: 9.6 MB/s, proven on disk for 6 min, 23 GB`.
    """
    failed = ""
    if boundary.failed_after_s is not None and boundary.proven_s is None:
        payload = format_mb_per_s(boundary.mb_per_s_overloaded)
        failed = f"measured: {payload} MB/s for {format_duration(boundary.failed_after_s)}"
    if boundary.steady_load is None:
        why = "; ".join(filter(None, (boundary.steady_note, failed)))
        return f"steady: not proven; {why}" if why else ""
    payload = load_words(boundary, round(boundary.steady_load), boundary.steady_mb_per_s)
    size = boundary.steady_bytes
    amount = "" if size is None else f", {format_volume(size)}"
    lasted = format_duration(boundary.steady_s or 0.0)
    proof = f"steady: {payload}, proven on disk for {lasted}{amount}"
    return "; ".join(filter(None, (proof, boundary.steady_note, failed)))


@dataclass(frozen=True)
class SizeAnswer:
    """The answer for one message size and one goal.

    Attributes:
        size: the message size with its unit. If a broker was offline, the text also has the state
            of the cluster.
        figure: the highest load that lasts, or a bound of it, such as `14.5 MB/s` or `at least 14.5
            MB/s`.
        beside: the load in other units, and the 90 % interval of the limit; empty if no load was
            sustained.
        broker: the load of one broker; empty if no load was sustained.
        bound: the limiting resource with its reading, or the reason why no limit was found.
        latency: latencies of the records at this load; empty if the latencies are not known.
        caveat: the most important restriction of the answer, see `caveats_of`; empty if there is no
            restriction.
        why: the evidence for the answer, one sentence for each fact, in the order of the answer's
            lines.
    """

    size: str
    figure: str
    beside: str
    broker: str
    bound: str
    latency: str
    caveat: str
    why: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """The answer in at most five lines."""
        first = ", ".join(filter(None, (self.figure, self.beside)))
        return tuple(filter(None, (first, self.broker, self.bound, self.latency, self.caveat)))


def answer_of(boundary: Boundary) -> SizeAnswer:
    """The answer of one boundary point."""
    caveats, boundary = caveats_of(boundary), boundary.lasting
    bound, further = _bound(boundary)
    proofs = (proven_words(boundary), steady_words(boundary))
    rest = (*proofs, *caveats[1:], *boundary.notes)
    latency = latency_words(*boundary.latencies_ms)
    state = "" if boundary.state == ALL_BROKERS else f", {boundary.state}"
    return SizeAnswer(
        size=f"{format_size(boundary.message_bytes)}{state}",
        figure=answer_words(boundary, _short),
        beside=_beside(boundary),
        broker=_broker(boundary),
        bound=bound,
        latency=f"latency {latency}" if latency else "",
        caveat=f"caveat: {caveats[0].removeprefix('steady: ')}" if caveats else "",
        why=(
            *_loads(boundary),
            *further,
            *dict.fromkeys(each for each in rest if each and each not in caveats[:1]),
        ),
    )


def caveats_of(boundary: Boundary) -> list[str]:
    """The restrictions of an answer, one sentence for each. The most important restriction is
    first.

    The restrictions have this order: changes of the limit; a higher load that did not last; a load
    that is not proven on disk, because a part of its bytes stayed in memory; an interval that is
    too wide; a note of the search, if no load was sustained.
    """
    higher = load_words(boundary, boundary.loads[0], boundary.mb_per_s)
    is_short = boundary.lasted is False
    boundary = boundary.lasting
    doubt = doubt_words(boundary) if boundary.gave_up is None else ""
    unproven = steady_words(boundary) if boundary.steady_load is None else ""
    if not unproven and boundary.memory_bytes and boundary.steady_load is None:
        unproven = proven_words(boundary)
    named = (
        *reversed(boundary.changed),
        f"{higher} was sustained only for a short time" if is_short else "",
        unproven,
        f"doubtful: {doubt}" if doubt else "",
        *(() if boundary.loads[0] else boundary.notes[:1]),
    )
    return list(filter(None, named))


def _short(boundary: Boundary, load: int, mb_per_s: float | None) -> str:
    """A load in the unit of the axis, such as `14.5 MB/s` or `58 partitions per broker`."""
    axis = boundary.along
    if axis.unit != "MB/s" or boundary.parts:
        return axis.amount(load)
    return f"{format_mb_per_s(mb_per_s)} MB/s"


def _beside(boundary: Boundary) -> str:
    """The load in other units, with the interval of the limit in these units.

    Example: `14,500 messages/s; 13.8 to 15.2 MB/s (13,800 to 15,200 messages/s) at 90 %`.
    """
    if not boundary.loads[0]:
        return ""
    messages = f"{format_count(boundary.mps)} messages/s"
    is_payload = boundary.along.unit == "MB/s" and not boundary.parts
    rate = messages if is_payload else f"{format_mb_per_s(boundary.mb_per_s)} MB/s, {messages}"
    payload = payload_span_words(boundary.mb_per_s_low, boundary.mb_per_s_high)
    span, interval, mb_per_s = span_words(boundary), boundary.interval, boundary.mb_per_s
    if not span or interval is None:
        return rate
    if not payload or boundary.parts:
        return f"{rate}; {span} {boundary.along.unit_words} {AT_LEVEL}"
    counts = ""
    if boundary.along is not MESSAGE_BYTES:
        per_mb = boundary.mps / mb_per_s
        low, high = (
            format_count(per_mb * (each or 0.0))
            for each in (boundary.mb_per_s_low, boundary.mb_per_s_high)
        )
        counts = f" ({low} to {high} messages/s)"
    return f"{rate}; {payload} MB/s{counts} {AT_LEVEL}"


def _broker(boundary: Boundary) -> str:
    whole, each = boundary.mb_per_s, boundary.mb_per_s_per_broker
    if whole <= 0:
        return ""
    messages = format_count(boundary.mps * each / whole)
    return f"a broker: {format_mb_per_s(each)} MB/s ({messages} messages/s)"


def _bound(boundary: Boundary) -> tuple[str, tuple[str, ...]]:
    """A pair of a line and the texts of the evidence for the line. The line has the limiting
    resource, or the reason why the search ended.
    """
    why, over = boundary.gave_up, boundary.loads[1]
    shown = bound_words(boundary) if over is not None else "no overload was found"
    reasons = reason_texts(boundary.overload_reasons)
    above = (
        ""
        if over is None
        else f"at {load_words(boundary, over, boundary.mb_per_s_overloaded)}: {'; '.join(reasons)}"
    )
    is_shown = shown == f"bound by {boundary.evidence}"
    evidence = ("" if is_shown else boundary.evidence, above if reasons else "")
    if why is None:
        return shown, tuple(filter(None, evidence))
    return f"search ended: {_end_of(boundary) or why}", tuple(
        filter(None, (shown if over else "", *evidence))
    )


def _loads(boundary: Boundary) -> tuple[str, ...]:
    """Sentences about the sustained and the overloaded load, the interval of the limit, and the
    parts of a mix.
    """
    low, over = boundary.loads
    if not low and over is None:
        return ()
    sides = [
        f"{load_words(boundary, load, mb_per_s)} {verdict}"
        for load, mb_per_s, verdict in (
            (low, boundary.mb_per_s, "sustained"),
            (over, boundary.mb_per_s_overloaded, "overloaded"),
        )
        if load
    ]
    width = boundary.relative_width
    if width is not None and low:
        sides.append(f"{format_ratio(width)} apart")
    trials = format_counted(boundary.trials, "trial")
    found = f"{', '.join(sides)} after {trials}"
    if boundary.confirmed_s is not None:
        found += f", held for {format_duration(boundary.confirmed_s)}"
    if boundary.confidence is not None:
        sure = format_ratio(boundary.confidence)
        found += f"; the limit is between these loads with a probability of {sure}"
    span, best, unit = span_words(boundary), estimate_words(boundary), boundary.along.unit_words
    each = payload_span_words(boundary.mb_per_s_per_broker_low, boundary.mb_per_s_per_broker_high)
    payload = boundary.mb_per_s_estimate
    estimate = [
        "" if payload is None else f"best estimate {format_mb_per_s(payload)} MB/s",
        f"{'' if payload is not None else 'best estimate '}{best} {unit}" if best else "",
        f"{span} {unit} {AT_LEVEL}" if span else "",
        f"{each} MB/s a broker {AT_LEVEL}" if each else "",
    ]
    parts = ", ".join(
        f"{part.part} ({part.np} × {format_size(part.bpm)}, {format_mb_per_s(part.mb_per_s)} MB/s)"
        for part in boundary.parts
    )
    mix = f"the mix of {parts}" if parts else ""
    return tuple(filter(None, (found, ", ".join(filter(None, estimate)), mix)))


def headline(boundaries: Sequence[Boundary], brokers: int) -> str:
    """A sentence about all message sizes; empty if there is only one size or no limit."""
    boundaries = [each.lasting for each in boundaries]
    closed = [b for b in boundaries if b.gave_up is None and b.mb_per_s > 0]
    if len(boundaries) < 2 or not closed or not closed[0].along.grows_payload:
        return ""
    low, high = (pick(closed, key=lambda b: b.mb_per_s) for pick in (min, max))
    lowest, highest = (
        f"{format_mb_per_s(each.mb_per_s)} MB/s at {format_size(each.message_bytes)}"
        for each in (low, high)
    )
    what = lowest if low is high else f"from {lowest} to {highest}"
    who = "The cluster sustains" if not brokers else f"{format_counted(brokers, 'broker')} sustain"
    who += "s" if brokers == 1 else ""
    missing = len(boundaries) - len(closed)
    without = f" {format_counted(missing, 'size')} ended without a limit." if missing else ""
    sizes = doubtful_sizes(boundaries)
    doubtful = f" Doubtful: {sizes}." if sizes else ""
    return f"{who} {what}. {_limiting_resources(closed)}{without}{doubtful}"


def _limiting_resources(closed: Sequence[Boundary]) -> str:
    sizes: dict[str, list[str]] = {}
    for each in closed:
        resource = each.limited_by or Resource.UNKNOWN.value
        sizes.setdefault(resource, []).append(format_size(each.message_bytes))
    if list(sizes) == [Resource.UNKNOWN.value]:
        return "The limiting resource is not known."
    if len(sizes) == 1 and len(closed) > 1:
        return f"Limiting resource at every size: {next(iter(sizes))}."
    found = "; ".join(f"{resource} at {_listed(at)}" for resource, at in sizes.items())
    return f"Limiting resource{'s' if len(sizes) > 1 else ''}: {found}."


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


_SINGULAR = {Resource.CPU, Resource.NETWORK}
_SHARED_OUT = (Resource.REQUEST_HANDLERS, Resource.NETWORK_THREADS, Resource.CPU, Resource.NETWORK)
"""Resources whose unused share shows how much more load a broker can take. A disk is excluded,
because a busy disk can often take more load."""


@dataclass(frozen=True)
class LoadAnswer:
    """The answer about a fixed load: does the cluster sustain the load?

    Attributes:
        carries: True if the cluster sustains the load, False if it does not, None if there is no
            conclusion.
        text: the answer in one line that begins with `yes`, `no` or `no conclusion`. The text is
            empty for a closed loop, because a closed loop has no offered rate.
    """

    carries: bool | None
    text: str


def answer_of_load(
    trials: Sequence[Trial],
    ceilings: Mapping[Resource, float],
    is_continuous: bool = False,
    ended: str = "",
) -> LoadAnswer:
    """The answer about a fixed load, from its trials or from the windows of one continuous load.

    A single overloaded trial means that the cluster does not sustain the load. If no trial was
    overloaded, at least half of the trials must be valid for an answer.

    Args:
        trials: the trials, oldest first.
        ceilings: resource → highest use at which the goal accepts a load [ratio].
        is_continuous: True if the trials are windows of one load that never pauses.
        ended: the reason why the run ended early; empty if it did not end early.
    """
    one = "window" if is_continuous else "trial"
    if not trials:
        return LoadAnswer(None, f"no conclusion, because {ended or 'nothing was measured'}")
    over = [each for each in trials if each.verdict is Verdict.OVERLOADED]
    valid = [each for each in trials if each.is_valid]
    count, load = f"of {format_count(len(trials))} {one}s", _offered(trials[0])
    lost = [each for each in trials if not each.is_valid]
    unjudged = f"{len(lost)} {count} could not be judged: {lost[0].reasons[0].text}" if lost else ""
    if valid and trials[0].pattern.producer.closed_loop:
        return LoadAnswer(None, "")
    if over:
        first = over[0]
        bound = "" if first.limited_by is None else f"; limiting resource: {first.limited_by.value}"
        after_s = first.started_at_s - trials[0].started_at_s
        when = f", the first of them after {format_duration(after_s)}" if is_continuous else ""
        share = f"{len(over)} {count} {'was' if len(over) == 1 else 'were'} overloaded{when}"
        why = f"{first.reasons[0].text}{bound}; {share}"
        return LoadAnswer(False, f"no: {load} {_time(trials, is_continuous)}; reason: {why}")
    if 2 * len(valid) < len(trials) or (not valid and not ended):
        return LoadAnswer(None, f"no conclusion, because {unjudged}")
    if ended:
        carried = f"; {load} was sustained {_time(valid, is_continuous)} until then" * bool(valid)
        return LoadAnswer(None, f"no conclusion, because {ended}{carried}")
    text = f"yes: {load} {_time(valid, is_continuous)}{_latency(valid)}"
    return LoadAnswer(True, "; ".join(filter(None, (text, _left(valid, ceilings), unjudged))))


def _offered(trial: Trial) -> str:
    """The offered load in words, such as `200.0 MB/s (200,000 messages/s)`."""
    pattern = trial.pattern
    peak = pattern.peak_share
    shape = f"up to {{}} (profile {pattern.profile.name})" if pattern.profile is not None else "{}"
    messages = format_count(pattern.records_per_s * peak)
    return shape.format(f"{format_mb_per_s(pattern.peak_mb_per_s)} MB/s ({messages} messages/s)")


def _time(trials: Sequence[Trial], is_continuous: bool) -> str:
    each_s = [trial.evidence.client.duration_s for trial in trials]
    if is_continuous or len(trials) == 1:
        return f"for {format_duration(sum(each_s))}"
    return f"in {len(trials)} trials of {format_duration(max(each_s))}"


def _latency(trials: Sequence[Trial]) -> str:
    found = [each.evidence.client.latency.p99_ms for each in trials]
    known = [each for each in found if math.isfinite(each)]
    if not known:
        return ""
    return f", p99 {'up to ' if len(trials) > 1 else ''}{format_ms(max(known))} ms"


def _left(trials: Sequence[Trial], ceilings: Mapping[Resource, float]) -> str:
    """The unused share of the resource that was closest to the goal's threshold."""
    uses = [
        (use.utilization, use)
        for trial in trials
        for use in trial.evidence.resources
        if use.resource in _SHARED_OUT and use.utilization is not None
    ]
    if not uses:
        return ""
    used, use = max(uses, key=lambda each: each[0] / (ceilings.get(each[1].resource) or 1.0))
    verb = "was" if use.resource in _SINGULAR else "were"
    ceiling = ceilings.get(use.resource, 1.0)
    least = f" (the goal requires {format_ratio(1.0 - ceiling)})" if ceiling < 1.0 else ""
    return (
        f"the {use.resource.value} of broker {use.broker_id} {verb} "
        f"{'at least ' if len(trials) > 1 else ''}{format_ratio(1.0 - used)} idle{least}"
    )
