"""The `redline` command, which kills itself with SIGKILL at one step of a run.

`python -m tests.support.killed_command STEP find-limit …`
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from jobs.cli import main
from jobs.runs import results
from metrics.tables.store import TableStore

When = Callable[..., bool]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _at(owner: Any, name: str, when: When, *, is_over: bool) -> None:
    """Die when the function is called, before it runs, or before it returns to its caller."""
    own = getattr(owner, name)

    def mortal(*arguments: Any, **named: Any) -> Any:
        if not is_over and when(*arguments):
            _die()
        answer = own(*arguments, **named)
        if is_over and when(*arguments):
            _die()
        return answer

    setattr(owner, name, mortal)


_before, _after = partial(_at, is_over=False), partial(_at, is_over=True)


def _of_event(event: str) -> When:
    def when(_store: Any, table: str, rows: Any, _options: Any) -> bool:
        return table == "runs" and rows[0].event == event

    return when


def _alone(table: str, others: tuple[str, ...]) -> None:
    """Die when one part of a trial is in its table, before its other parts are written."""
    own = TableStore._append

    def mortal(store: Any, written: str, *arguments: Any) -> None:
        if written in others:
            threading.Event().wait()
        own(store, written, *arguments)
        if written == table:
            _die()

    setattr(TableStore, "_append", mortal)  # noqa: B010 - as above


STEPS: dict[str, Callable[[], None]] = {
    "the start is recorded": lambda: _after(TableStore, "_append", _of_event("started")),
    "samples without their trial": lambda: _alone("samples", ("trials", "hosts")),
    "hosts without their trial": lambda: _alone("hosts", ("trials", "samples")),
    "a trial without its samples": lambda: _alone("trials", ("samples", "hosts")),
    "before a limit is recorded": lambda: _before(TableStore, "append_boundary", lambda *_: True),
    "a limit is recorded": lambda: _after(
        TableStore, "_append", lambda _store, table, *_: table == "boundaries"
    ),
    "before the end is recorded": lambda: _before(TableStore, "_append", _of_event("finished")),
    "the end is recorded": lambda: _after(TableStore, "_append", _of_event("finished")),
    "the summary is written": lambda: _after(results, "write_summary", lambda *_: True),
}
"""Step → function that makes the driver die at this step."""

if __name__ == "__main__":
    STEPS[sys.argv[1]]()
    del sys.argv[1]
    main()
