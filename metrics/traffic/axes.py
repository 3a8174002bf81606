"""The axes of the traffic space that a search may follow: what a load on each of them is.

A load is a whole number. The traffic at a load is a pattern with one of its options replaced,
so everything behind it (topics, plans, rows) sees an ordinary pattern. A further axis is one
more entry of `AXES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from metrics.traffic.consumers import GROUPS_MAX
from metrics.traffic.pattern import PARTITIONS_MAX, TrafficPattern
from metrics.traffic.producer import BATCH_SIZE_MAX, LINGER_MS_MAX
from metrics.traffic.sizes import MESSAGE_BYTES_MAX
from search.model import PRODUCERS, LoadWords


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        name: as goals have it.
        option: what a load replaces, as a path below the pattern.
        counts: what a load counts.
        column: its heading where there is little room.
        maximum: the highest load that the option takes; None where only the goal bounds it.
        grows_payload: more load is proportionally more payload.
        grows_batches: more load makes larger batches, which brokers may refuse.
        needs_latency: more load makes records wait and takes no more work, so that only a
            latency objective says how much is too much.
        other_way: what else can be raised when even the goal's highest load was sustained.
    """

    name: str
    option: str
    counts: LoadWords
    column: str = ""
    maximum: int | None = None
    grows_payload: bool = False
    grows_batches: bool = False
    needs_latency: bool = False
    other_way: str = ""

    def apply(self, pattern: TrafficPattern, load: int) -> TrafficPattern:
        """The traffic at a load."""
        placed: TrafficPattern = _replaced(pattern, self.option.split("."), load)
        return replace(placed, axis=self.name, load=load)

    @property
    def words(self) -> str:
        """What a load counts, in the plural."""
        return self.counts.many

    @property
    def heading(self) -> str:
        """Its heading where there is little room."""
        return self.column or self.name

    @property
    def key(self) -> str:
        """Its name in lines for logs: what a load counts, where that is a single word."""
        return self.words if self.words.isidentifier() else self.name

    @property
    def unit(self) -> str:
        """Of a limit's figure: MB/s, where more load is more payload, or what a load counts."""
        return "MB/s" if self.grows_payload else self.words

    def amount(self, load: int) -> str:
        """`95 producers`: a load in words."""
        return self.counts.amount(load)


def _replaced(record: Any, path: list[str], load: int) -> Any:
    name, *rest = path
    now = getattr(record, name)
    return replace(record, **{name: _replaced(now, rest, load) if rest else type(now)(load)})


NP = Axis(
    "np",
    "np",
    PRODUCERS,
    column="producers",
    grows_payload=True,
    other_way="the rate of each producer so that fewer of them are needed",
)
"""The axis of a search when its goal names no other."""

RATE = Axis(
    "rate",
    "producer.rate_records_per_s",
    LoadWords("records/s of each producer"),
    grows_payload=True,
)

MESSAGE_BYTES = Axis(
    "message_bytes",
    "producer.bpm",
    LoadWords("bytes per message"),
    column="bytes",
    maximum=MESSAGE_BYTES_MAX,
    grows_payload=True,
    grows_batches=True,
)

PARTITIONS = Axis(
    "partitions",
    "topic.partitions_per_broker",
    LoadWords("partitions per broker"),
    column="parts",
    maximum=PARTITIONS_MAX,
)

AXES: Mapping[str, Axis] = {
    axis.name: axis
    for axis in (
        NP,
        RATE,
        MESSAGE_BYTES,
        PARTITIONS,
        Axis(
            "consumer_groups",
            "consumers.groups",
            LoadWords("consumer groups", "consumer group"),
            column="groups",
            maximum=GROUPS_MAX,
        ),
        Axis(
            "linger_ms",
            "producer.options.linger_ms",
            LoadWords("ms of linger"),
            column="linger",
            maximum=LINGER_MS_MAX,
            needs_latency=True,
        ),
        Axis(
            "batch_size",
            "producer.options.batch_size",
            LoadWords("bytes per batch"),
            column="batch",
            maximum=BATCH_SIZE_MAX,
            grows_batches=True,
            needs_latency=True,
        ),
    )
}
"""By their names."""


def axis_named(name: str) -> Axis:
    """The axis of this name; one that a newer version wrote into a table has no other words."""
    return AXES.get(name) or Axis(name, name, LoadWords(name))
