"""Mixes and their scale. A mix combines several traffic patterns in one load.

A mix is a `TrafficPattern` whose `parts` are several patterns. The other fields of a mix are sums
and means over the parts, so most code handles a mix like any other pattern.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from metrics.columns import row_of
from metrics.traffic.pattern import TrafficPattern

SCALE_UNITS = 100
"""Load of scale 1 on the axis `scale`, where a load is an integer percentage."""


def mix_of(parts: Sequence[TrafficPattern]) -> TrafficPattern:
    """Combine named parts into one pattern.

    Raises:
        ValueError: there is no part.
    """
    if not parts:
        raise ValueError("a mix has no parts; expected at least one")
    largest = max(parts, key=lambda each: each.mb_per_s)
    most_groups = max((each.consumers for each in parts), key=lambda each: each.groups)
    producers = sum(each.producers for each in parts)
    records_per_s = sum(each.records_per_s for each in parts)
    return replace(
        largest,
        producers=producers,
        producer=replace(
            largest.producer,
            message_bytes=mean_message_bytes(parts),
            rate_records_per_s=records_per_s / producers,
            part="",
        ),
        consumers=replace(most_groups, groups=sum(each.consumers.groups for each in parts)),
        point_message_bytes=mean_message_bytes([each.at_scale_1 or each for each in parts]),
        parts=tuple(parts),
        at_scale_1=None,
        mix={each.part: _options_of(each.at_scale_1 or each) for each in parts},
    )


def mean_message_bytes(parts: Sequence[TrafficPattern]) -> int:
    """Mean message size [B] over all parts, weighted by the rates of the parts."""
    records_per_s = sum(each.records_per_s for each in parts)
    return max(1, round(1e6 * sum(each.mb_per_s for each in parts) / records_per_s))


def _options_of(part: TrafficPattern) -> str:
    """The producers, the message size and the rate of a part, and the options of the part that
    differ from the defaults.
    """
    named = {
        "producers": part.producers,
        "message_bytes": part.producer.message_bytes,
        "rate_records_per_s": part.producer.rate_records_per_s,
        **_set_options("", part.producer.options),
        **_set_options("payload.", part.producer.payload),
        **_set_options("topic.", part.topic),
        **_set_options("consumers.", part.consumers),
    }
    return ", ".join(f"{name} {_text(value)}" for name, value in named.items())


def _set_options(prefix: str, record: Any) -> dict[str, Any]:
    """Column → value, for the required fields of a dataclass and for fields that differ from their
    defaults.
    """
    required = {
        item.name: getattr(record, item.name)
        for item in dataclasses.fields(record)
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    }
    defaults = row_of(type(record)(**required))
    return {
        f"{prefix}{name}": value
        for name, value in row_of(record).items()
        if value is not None and (name in required or value != defaults.get(name))
    }


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_text(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def scaled(pattern: TrafficPattern, load: int, part: str = "") -> TrafficPattern:
    """The traffic of a pattern at a scale.

    The number of producers is rounded to an integer of at least 1. The rates of the producers are
    adapted, so that the total rate is exact. Consumer groups do not change.

    Args:
        pattern: the traffic pattern to scale, which can be a mix.
        load: the scale [% of the traffic at scale 1].
        part: name of the part to scale; empty for all parts.
    """
    if not pattern.parts:
        return _scaled(pattern, load)
    loads = (load if part in {"", each.part} else None for each in pattern.parts)
    parts = tuple(map(_scaled, pattern.parts, loads))
    return replace(
        mix_of(parts),
        brokers=pattern.brokers,
        phases=pattern.phases,
        profile=pattern.profile,
        axis=pattern.axis,
        load=pattern.load,
        point_message_bytes=pattern.point_message_bytes,
    )


def _scaled(pattern: TrafficPattern, load: int | None) -> TrafficPattern:
    """A pattern at a scale [%]. The scale None means scale 1."""
    base = pattern.at_scale_1 or pattern
    wanted = base.producers * (SCALE_UNITS if load is None else load) / SCALE_UNITS
    producers = max(1, round(wanted))
    rate = base.producer.rate_records_per_s
    if math.isfinite(rate) and producers != wanted:
        rate *= wanted / producers
    return replace(
        pattern,
        producers=producers,
        producer=replace(base.producer, rate_records_per_s=rate),
        at_scale_1=base,
    )
