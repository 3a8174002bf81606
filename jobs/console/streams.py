"""Standard streams that can fail during a run, for example a closed pipe, a full disk or a closed
terminal.

A run continues after its standard stream fails, because files and tables contain all results.
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
"""Errors that a write raises if the stream is full, disconnected or closed."""


def steady(stream: TextIO | None, warn: Callable[[str], None] | None = None) -> TextIO:
    """A stream that discards all output after the first write that fails.

    Args:
        stream: the stream to write to; None if the process was started without this stream.
        warn: function that is called once, with the reason of the failure. If a pipe was closed,
            `warn` is not called.
    """
    return cast("TextIO", _SteadyStream(stream, warn))


class _SteadyStream(io.TextIOBase):
    def __init__(self, stream: TextIO | None, warn: Callable[[str], None] | None) -> None:
        super().__init__()
        self._stream = stream
        self._warn = warn

    def write(self, text: str) -> int:
        """Write the text, or discard it after a failure."""
        return self._try(lambda stream: stream.write(text), len(text))

    def flush(self) -> None:
        """Flush the stream, or do nothing after a failure."""
        self._try(lambda stream: stream.flush(), None)

    def isatty(self) -> bool:
        """Whether the stream is a terminal that has not failed."""
        return self._try(lambda stream: stream.isatty(), False)

    def fileno(self) -> int:
        """The stream's file descriptor."""
        if self._stream is None:
            raise io.UnsupportedOperation("fileno")
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a property in TextIOBase, too
        """The stream's encoding."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def _try(self, action: Callable[[TextIO], Result], otherwise: Result) -> Result:
        if self._stream is None:
            return otherwise
        try:
            return action(self._stream)
        except GONE as error:
            gone, self._stream = self._stream, None
            silence(gone)
            if self._warn is not None and not isinstance(error, BrokenPipeError):
                self._warn(getattr(error, "strerror", None) or str(error))
            return otherwise


def silence(stream: TextIO) -> None:
    """Discard the buffered output of a failed standard stream, because Python would flush it at
    exit.
    """
    if stream not in (sys.stdout, sys.stderr):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    except GONE:
        return  # the stream is closed, or has no file descriptor
    finally:
        os.close(nowhere)


def has_no_reader(descriptor: int) -> bool:
    """Whether the descriptor is a pipe whose read end is closed."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def settle_streams() -> None:
    """Flush both standard streams. If a flush fails, discard the stream's buffered output."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except GONE:
            silence(stream)
