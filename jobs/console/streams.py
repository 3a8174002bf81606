"""Standard streams that may go away in the middle: a closed pipe, a full disk, a terminal hung up.

A run outlives whoever reads it: what it measured is in its files and tables.
"""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Callable
from typing import TextIO, TypeVar, cast

Result = TypeVar("Result")

GONE = (OSError, ValueError)
"""What writing to a stream raises that is full, gone or closed."""


def steady(stream: TextIO | None, tell: Callable[[str], None] | None = None) -> TextIO:
    """A stream that is silent from the first write that fails, and tells why once.

    Args:
        stream: to write to; None where the process was started without.
        tell: hears why nothing is written any more, unless whoever read it just left.
    """
    return cast("TextIO", _SteadyStream(stream, tell))


class _SteadyStream(io.TextIOBase):
    def __init__(self, stream: TextIO | None, tell: Callable[[str], None] | None) -> None:
        super().__init__()
        self._stream = stream
        self._tell = tell

    def write(self, text: str) -> int:
        """Write, or do nothing where that cannot be."""
        return self._try(lambda stream: stream.write(text), len(text))

    def flush(self) -> None:
        """Hand on what was written."""
        self._try(lambda stream: stream.flush(), None)

    def isatty(self) -> bool:
        """Whether it is a terminal, still."""
        return self._try(lambda stream: stream.isatty(), False)

    def fileno(self) -> int:
        """Of the stream."""
        if self._stream is None:
            raise io.UnsupportedOperation("fileno")
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a property there, too
        """Of the stream."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def _try(self, action: Callable[[TextIO], Result], otherwise: Result) -> Result:
        if self._stream is None:
            return otherwise
        try:
            return action(self._stream)
        except GONE as error:
            gone, self._stream = self._stream, None
            silence(gone)
            if self._tell is not None and not isinstance(error, BrokenPipeError):
                self._tell(getattr(error, "strerror", None) or str(error))
            return otherwise


def silence(stream: TextIO) -> None:
    """Have what such a stream still holds go nowhere, as Python flushes it at its end."""
    if stream not in (sys.stdout, sys.stderr):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    except GONE:
        return  # closed, or no file of the system
    finally:
        os.close(nowhere)


def has_no_reader(descriptor: int) -> bool:
    """Whether it is a pipe that nobody reads any more."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def settle_streams() -> None:
    """Flush both standard streams; one that cannot be flushed is silenced."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except GONE:
            silence(stream)
