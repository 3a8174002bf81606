"""Kafka's codecs, at the levels that its own producer has by default."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafka import codec

from search.errors import ConfigError

_GZIP_LEVEL = 6  # the Java client's default; kafka-python's is 9


class CodecError(ConfigError):
    """A codec that is unknown, or whose library is missing here."""


@dataclass(frozen=True)
class Codec:
    """One value of `compression.type`.

    Attributes:
        number: what the lowest three bits of a batch's attributes say.
        compress: from encoded records to what follows the batch header.
        is_installed: whether its library is there.
        package: what to install.
    """

    number: int
    compress: Callable[[bytes], bytes]
    is_installed: Callable[[], bool]
    package: str = ""


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, _GZIP_LEVEL, mtime=0)  # no time, or no two pools were the same


def _plain(data: bytes) -> bytes:
    return data


def _always() -> bool:
    return True


CODECS: Mapping[str, Codec] = {
    "none": Codec(0, _plain, _always),
    "gzip": Codec(1, _gzip, _always),
    "snappy": Codec(2, codec.snappy_encode, codec.has_snappy, "python-snappy"),
    "lz4": Codec(3, codec.lz4_encode, codec.has_lz4, "lz4"),
    "zstd": Codec(4, codec.zstd_encode, codec.has_zstd, "zstandard"),
}
"""By the names of `compression.type`."""


def codec_named(name: str) -> Codec:
    """The codec of this name, if its library is here.

    Raises:
        CodecError: there is none of this name, or its library is not installed here.
    """
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
    return found
