"""Kafka's codecs and their levels, as Kafka's own producer has them."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kafka import codec

from metrics.common.errors import ConfigError
from metrics.traffic.producer import LZ4_FAST_LEVEL, ProducerOptions

_LZ4_HIGH_LEAST = 3  # below this level, LZ4 frames use the fast compressor


class CodecError(ConfigError):
    """A codec that is unknown, or whose library is missing here."""


@dataclass(frozen=True)
class Codec:
    """A codec, which is one value of `compression.type`.

    Attributes:
        number: value of the lowest three bits of a batch's attributes.
        encode: compresses data at a level.
        is_installed: returns whether its library is installed.
        package: name of the package to install.
        level: level from `ProducerOptions`; None for a codec without levels.
    """

    number: int
    encode: Callable[[bytes, int], bytes]
    is_installed: Callable[[], bool]
    package: str = ""
    level: int | None = None

    def compress(self, data: bytes) -> bytes:
        """Compress encoded records to the bytes that follow the batch header."""
        return self.encode(data, self.level or 0)


def _plain(data: bytes, _level: int) -> bytes:
    return data


def _gzip(data: bytes, level: int) -> bytes:
    return gzip.compress(
        data, level, mtime=0
    )  # without a time, so that equal pools have equal bytes


def _snappy(data: bytes, _level: int) -> bytes:
    encoded: bytes = codec.snappy_encode(data)
    return encoded


def _lz4(data: bytes, level: int) -> bytes:
    frame_level = 0 if level == LZ4_FAST_LEVEL else max(_LZ4_HIGH_LEAST, level)
    encoded: bytes = codec.lz4_encode(data, compression_level=frame_level)
    return encoded


def _zstd(data: bytes, level: int) -> bytes:
    encoded: bytes = codec.zstd.ZstdCompressor(level=level).compress(data)
    return encoded


def _always() -> bool:
    return True


CODECS: Mapping[str, Codec] = {
    "none": Codec(0, _plain, _always),
    "gzip": Codec(1, _gzip, _always),
    "snappy": Codec(2, _snappy, codec.has_snappy, "python-snappy"),
    "lz4": Codec(3, _lz4, codec.has_lz4, "lz4"),
    "zstd": Codec(4, _zstd, codec.has_zstd, "zstandard"),
}
"""Name of a codec, as in `compression.type` → codec."""


def codec_of(options: ProducerOptions) -> Codec:
    """The codec of a producer at its level.

    Raises:
        CodecError: there is no codec of this name, or its library is not installed here.
    """
    name = options.compression
    found = CODECS.get(name)
    if found is None:
        raise CodecError(
            f"producer.compression is {name}; expected one of {', '.join(CODECS)}; correct it"
        )
    if not found.is_installed():
        raise CodecError(
            f"producer.compression is {name}, and {socket.gethostname()} has no package "
            f"{found.package}; expected it on every executor; install it there "
            f"(pip install {found.package}), or choose another codec"
        )
    return replace(found, level=options.compression_level)
