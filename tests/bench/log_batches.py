"""Number of record batches in the logs of brokers on this machine.

Each client decides itself what it puts into a batch. While the brokers keep up, a produce request
holds one batch, so the batches in the log are the requests of any client.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_HEAD = struct.Struct(">qi")  # base offset, and length of what follows


def batches_between(
    folders: Iterable[Path], topic: str, first: Mapping[int, int], last: Mapping[int, int]
) -> int:
    """Number of a topic's batches whose offsets are in [first, last) of their partition.

    Args:
        folders: data folders of the brokers; with replicas, each copy counts.
        first, last: partition → offset.
    """
    return sum(
        first[partition] <= base < end
        for folder in folders
        for partition, end in last.items()
        for base in _base_offsets(folder / f"{topic}-{partition}", first[partition])
    )


def _base_offsets(partition: Path, first: int) -> Iterator[int]:
    """Base offsets of the batches in the segments that hold this offset and all later ones."""
    segments = sorted(partition.glob("*.log"))
    begun = [number for number, path in enumerate(segments) if int(path.stem) <= first]
    for path in segments[max(begun, default=0) :]:
        with path.open("rb") as file:
            while len(head := file.read(_HEAD.size)) == _HEAD.size:
                base, length = _HEAD.unpack(head)
                if length <= 0:  # the rest of the file is not written yet
                    break
                yield base
                file.seek(length, 1)
