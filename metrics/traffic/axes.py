"""The axes along which a search can increase the load, with the meaning of a load on each axis.

A load is a whole number. To get the traffic at a load, an axis replaces one option of a traffic
pattern. So other code (topics, plans, rows) does not depend on axes. A new axis is a new entry of
`AXES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from metrics.traffic.clients import BATCH_SIZE_MAX, GROUPS_MAX, LINGER_MS_MAX
from metrics.traffic.mix import SCALE_UNITS, scaled
from metrics.traffic.pattern import PARTITIONS_MAX, TrafficPattern
from metrics.traffic.payload import MESSAGE_BYTES_MAX
from search.model import PRODUCERS, LoadWords


@dataclass(frozen=True)
class Axis:
    """An axis along which a search can increase the load.

    Attributes:
        name: name of the axis in goals.
        option: path from the traffic pattern to the option that a load replaces.
        counts: words for the unit of a load, such as `producer` and `producers`.
        column: short heading for narrow columns.
        maximum: highest load that the option allows; None if only the goal has a maximum.
        grows_payload: True if the payload rate is proportional to the load.
        grows_batches: True if a higher load makes larger batches, which brokers can refuse.
        needs_latency: True if a higher load makes records wait longer, but gives the brokers no
            additional work. A limit on an axis with `needs_latency` requires a latency objective.
        other_way: noun phrase for another option, which the user can raise if the brokers sustain
            the goal's highest load.
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
        """The traffic of the given pattern at the given load."""
        placed: TrafficPattern = _replaced(pattern, self.option.split("."), load)
        return replace(placed, axis=self.name, load=load)

    @property
    def words(self) -> str:
        """The unit of a load, in the plural."""
        return self.counts.many

    @property
    def unit_words(self) -> str:
        """The unit of the number that `shown` returns, in the plural."""
        return self.words

    def shown(self, load: float) -> float:
        """A load in the unit for people."""
        return load

    @property
    def heading(self) -> str:
        """The heading for narrow columns."""
        return self.column or self.name

    @property
    def key(self) -> str:
        """The key in log lines: the unit of a load, or the axis's name if the unit is not a single
        word.
        """
        return self.words if self.words.isidentifier() else self.name

    @property
    def unit(self) -> str:
        """The unit of a limit: MB/s if the payload rate grows with the load, otherwise the unit of
        a load.
        """
        return "MB/s" if self.grows_payload else self.words

    def amount(self, load: int) -> str:
        """A load in words, such as `95 producers`."""
        return self.counts.amount(load)


@dataclass(frozen=True)
class ScaleWords(LoadWords):
    """The words for a scale: a load of 270 is `2.7 times the mix`."""

    def amount(self, load: int) -> str:
        """A load in words, such as `2.7 times the mix`."""
        return f"{load / SCALE_UNITS:g} times {self.one}"


@dataclass(frozen=True)
class ScaleAxis(Axis):
    """An axis that scales a whole mix, or one part of a mix.

    Attributes:
        part: name of the part that is scaled while the other parts are constant; empty if the whole
            mix is scaled.
    """

    part: str = ""

    def apply(self, pattern: TrafficPattern, load: int) -> TrafficPattern:
        """The traffic of the given pattern at the given load. The load is a percentage: a load of
        100 is the scale 1.
        """
        return replace(scaled(pattern, load, self.part), axis=self.name, load=load)

    @property
    def unit_words(self) -> str:
        """The unit of a scale, such as `times the mix`."""
        return f"times {self.counts.one}"

    def shown(self, load: float) -> float:
        """The scale of a load [ratio]."""
        return load / SCALE_UNITS


def _replaced(record: Any, path: list[str], load: int) -> Any:
    name, *rest = path
    now = getattr(record, name)
    return replace(record, **{name: _replaced(now, rest, load) if rest else type(now)(load)})


NP = Axis(
    "np",
    "producers",
    PRODUCERS,
    column="producers",
    grows_payload=True,
    other_way="the rate of each producer so that fewer producers are needed",
)
"""The default axis of a search."""

RATE = Axis(
    "rate",
    "producer.rate_records_per_s",
    LoadWords("records/s of each producer"),
    grows_payload=True,
)

MESSAGE_BYTES = Axis(
    "message_bytes",
    "producer.message_bytes",
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

SCALE = ScaleAxis(
    "scale",
    "producers",
    ScaleWords("% of the mix", "the mix"),
    column="% of mix",
    grows_payload=True,
)
"""The axis that scales all parts of a mix together."""

AXES: Mapping[str, Axis] = {
    axis.name: axis
    for axis in (
        NP,
        SCALE,
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
"""Name of an axis → the axis. The axes `scale.PART` are not included."""


def axis_named(name: str) -> Axis:
    """The axis with this name. If the name is not known, as in tables of newer versions, the name
    is also the unit.
    """
    return AXES.get(name) or scale_of_part(name) or Axis(name, name, LoadWords(name))


def scale_of_part(name: str) -> ScaleAxis | None:
    """The axis `scale.PART`, which scales one part of a mix; None for any other name."""
    axis, dot, part = name.partition(".")
    if axis != SCALE.name or not dot or not part:
        return None
    words = ScaleWords(f"% of {part}", part)
    return ScaleAxis(name, "producers", words, column=f"% of {part}", part=part)
