"""The best cases of a sweep, and the cases that do not differ from them significantly. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated

from metrics.columns import Column
from metrics.comparing.effects import interval_effect, spread_of
from metrics.comparing.sweeps import Result

NEAR = 0.1
"""For the aim `both`: distance from the highest figure up to which a figure is near it [share]."""
THROUGHPUT, LATENCY, BOTH = "throughput", "latency", "both"


@dataclass(frozen=True)
class CaseFigure:
    """A case at one message size, the medians of its repeats.

    Attributes:
        settings: full path of each key that varies → its value.
        message_bytes: message size [B].
        value: the middle of the figure's interval, or the figure if no interval is known.
        low, high: ends of the 90 % interval; None if it is not known.
        p99_ms: latency at the figure [ms].
        run_ids: ids of the runs of its repeats.
    """

    settings: Mapping[str, str]
    message_bytes: Annotated[int, Column("bpm")]
    value: float
    low: float | None
    high: float | None
    p99_ms: float | None
    run_ids: tuple[str, ...]

    def is_apart_from(self, other: CaseFigure) -> bool:
        """True if the figures differ significantly; False without intervals."""
        if not (self.low and self.high and other.low and other.high):
            return False
        ours = (self.value, spread_of(self.low, self.high))
        theirs = (other.value, spread_of(other.low, other.high))
        repeats = min(len(self.run_ids), len(other.run_ids))
        effect = interval_effect([(theirs, ours)] * repeats)
        return not effect.low <= 1.0 <= effect.high


@dataclass(frozen=True)
class Recommendation:
    """The best case for an aim.

    Attributes:
        aim: `throughput`: the highest figure; `latency`: the lowest p99 at the figure; `both`: the
            lowest p99 among the cases whose figure is near the highest.
        best: the best case.
        alike: for the aim `throughput`, settings of the cases whose figure does not differ
            significantly from the best one.
    """

    aim: str
    best: CaseFigure
    alike: tuple[Mapping[str, str], ...] = ()


def recommendations(
    results: Sequence[Result], less_is_better: bool = False
) -> tuple[Recommendation, ...]:
    """Find the best case for each aim at each message size with two or more figures.

    Args:
        less_is_better: True if figures are times; then throughput is the only aim.
    """
    found: list[Recommendation] = []
    for message_bytes in sorted({each.message_bytes for each in results}):
        cases = list(_cases([each for each in results if each.message_bytes == message_bytes]))
        if len(cases) > 1:
            found.extend(_quickest(cases) if less_is_better else _best(cases))
    return tuple(found)


def _quickest(cases: Sequence[CaseFigure]) -> Iterator[Recommendation]:
    yield Recommendation(THROUGHPUT, min(cases, key=lambda one: one.value))


def _best(cases: Sequence[CaseFigure]) -> Iterator[Recommendation]:
    highest = max(cases, key=lambda one: one.value)
    alike = tuple(
        one.settings for one in cases if one is not highest and not one.is_apart_from(highest)
    )
    yield Recommendation(THROUGHPUT, highest, alike)
    timed = [(one.p99_ms, one) for one in cases if one.p99_ms]
    if not timed:
        return
    yield Recommendation(LATENCY, min(timed, key=lambda pair: pair[0])[1])
    near = [pair for pair in timed if pair[1].value >= (1 - NEAR) * highest.value]
    if near:
        yield Recommendation(BOTH, min(near, key=lambda pair: pair[0])[1])


def _cases(results: Sequence[Result]) -> Iterator[CaseFigure]:
    by_case: dict[tuple[tuple[str, str], ...], list[Result]] = {}
    for each in results:
        if each.value:
            by_case.setdefault(tuple(sorted(each.settings.items())), []).append(each)
    for own in by_case.values():
        yield CaseFigure(
            own[0].settings,
            own[0].message_bytes,
            median(each.estimate or 0.0 for each in own),
            _middle([each.low for each in own]),
            _middle([each.high for each in own]),
            _middle([each.p99_ms for each in own]),
            tuple(each.run_id for each in own),
        )


def _middle(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return median(known) if known else None
