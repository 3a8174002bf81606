"""The error lines of a node's logs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from jobs.testbed.model import Member
from jobs.testbed.places import node_files

_TAIL_BYTES = 200_000
_LINES_MAX = 4
_LINE_CHARS_MAX = 300
_ADDRESS_IN_USE = re.compile(r"Address already in use|Port already in use")
_TELLING = re.compile(
    r"\] (ERROR|FATAL) |^[\d/]{8} [\d:]{8} ERROR |^(\S+\.)+\w*(Exception|Error)\b|^Caused by: "
    r"|^Error: |^Exception in thread "
)


def error_lines(node: Member) -> list[str]:
    """The last error lines of a node's logs, oldest first.

    Without error lines, the last lines of its console.
    """
    files = node_files(node)
    logged = [*_tail(files.format_log), *_tail(files.log), *_tail(files.console)]
    telling = _distinct(line for line in logged if _TELLING.search(line))
    chosen = telling or [line for line in _tail(files.console) if line.strip()]
    return [line.strip()[:_LINE_CHARS_MAX] for line in chosen[-_LINES_MAX:]]


def says_address_in_use(node: Member) -> bool:
    """Whether the node could not bind one of its ports."""
    files = node_files(node)
    return any(_ADDRESS_IN_USE.search(line) for path in (files.log, files.console)
               for line in _tail(path))  # fmt: skip


def tail_text(path: Path, lines: int) -> str:
    """The last lines of a file; empty when it does not exist."""
    return "\n".join(_tail(path)[-lines:])


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - _TAIL_BYTES))
            return stream.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:  # the node ended before it wrote one
        return []


def _distinct(lines: Iterable[str]) -> list[str]:
    """The lines without repetitions of the same message at another time."""
    seen: dict[str, str] = {}
    for line in lines:
        seen.setdefault(re.sub(r"^\[[^\]]*\] ", "", line), line)
    return list(seen.values())
