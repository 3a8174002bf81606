"""The parts of a mix in a workload's file: several kinds of traffic in one load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from jobs.config.base import ConfigModel, FileSection
from jobs.config.source import ParsedFile
from metrics.common.bounds import Text, Whole
from metrics.common.errors import ConfigError
from metrics.traffic.consumers import ConsumerOptions
from metrics.traffic.pattern import TopicOptions
from metrics.traffic.payload import Payload
from metrics.traffic.producer import ProducerOptions
from metrics.traffic.sizes import MESSAGE_BYTES_MAX

MIX = "mix"
OF_PARTS = ("message_bytes", "np", "producer", "payload", "topic", "consumers")
"""Keys of a workload that stand in the parts of a mix instead."""

PartName = Annotated[
    str,
    Text(r"[A-Za-z0-9_-]{1,40}", "a name of at most 40 letters, digits, dashes and underscores"),
]


class MixPart(ConfigModel):
    """One kind of traffic in a mix; its sections have the keys of a workload.

    Attributes:
        producers: number of producers at scale 1.
        message_bytes: mean size of a message's key and value together [B].
    """

    producers: Annotated[int, Whole(1, 100_000, "producers")]
    message_bytes: Annotated[int, Whole(1, MESSAGE_BYTES_MAX, "bytes")]
    producer: Annotated[ProducerOptions, FileSection()]
    payload: Annotated[Payload, FileSection()] = Payload()
    topic: Annotated[TopicOptions, FileSection()]
    consumers: Annotated[ConsumerOptions, FileSection()] = ConsumerOptions()


def sections_of_mix(source: ParsedFile) -> dict[str, Any]:
    """The data of a workload's file; that of a mix with the sections of its first part.

    They stand for the sections of the whole, which follow from all parts once these are checked.

    Raises:
        ConfigError: a key that belongs into the parts stands beside them.
    """
    data = source.data
    parts = data.get(MIX)
    if parts is None:
        return data
    for key in OF_PARTS:
        if data.get(key) is not None:
            raise ConfigError(
                f"{source.origin((key,))}: {key} stands beside {MIX}; expected it in the parts of "
                f"the mix, as each has its own; move it, or remove {MIX}"
            )
    first = next(iter(parts.values()), None) if isinstance(parts, Mapping) else None
    known = first if isinstance(first, Mapping) else {}
    sections = {key: known[key] for key in OF_PARTS if key in known}
    if "message_bytes" in sections:
        sections["message_bytes"] = [sections["message_bytes"]]
    return {**data, **sections}
