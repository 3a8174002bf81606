"""The one place that catches errors and picks the exit code, for every job."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from types import FrameType

import click

from jobs.console.streams import has_no_reader, settle_streams
from jobs.setup.places import cache_dir
from metrics.common.errors import ConfigError, RedlineError, TerminatedError

INTERRUPTED = 130
DATABRICKS = "DATABRICKS_RUNTIME_VERSION"
"""Set where Databricks runs the job, which takes any SystemExit, one of 0 too, for a failure."""
UNEXPECTED = 1
_AGAIN_S = 0.05
_OF_THE_MACHINE = {
    errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.EISDIR, errno.ELOOP, errno.EMFILE,
    errno.ENAMETOOLONG, errno.ENFILE, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS,
}  # fmt: skip
"""Errors that somebody can mend without knowing our code."""


def run(command: click.Command, args: Sequence[str] | None = None) -> None:
    """Run a job's command and exit with its code; on Databricks a job that is done just returns.

    0 done, 1 unexpected error, 2 bad usage or configuration, 3 no conclusion,
    4 regression found, 5 stopped by a guard, 75 try again later (the cluster is in use or down),
    130 interrupted, 143 terminated.
    """
    # Libraries log what we say in a sentence of our own; a run keeps it in its folder.
    logging.getLogger().addHandler(logging.NullHandler())
    interrupts = _heed_signals()
    code = _code_of(command, args, interrupts)
    settle_streams()
    if code or DATABRICKS not in os.environ:
        sys.exit(code)


def _heed_signals() -> list[int]:
    """Have signals end what the main thread does; the list is of those that came."""
    interrupts: list[int] = []
    was_lost = threading.Event()

    def interrupt(number: int, _frame: FrameType | None) -> None:
        interrupts.append(number)
        is_again = was_lost.is_set()
        was_lost.clear()
        if number == signal.SIGTERM and interrupts.count(number) > 1 and not is_again:
            return  # the end is under way; a process group hears of it from several sides
        raise KeyboardInterrupt if number == signal.SIGINT else TerminatedError

    def say_again(lost: sys.UnraisableHookArgs) -> None:
        """Python drops what is raised in a finalizer, such as those by which py4j lets go."""
        if isinstance(lost.exc_value, (KeyboardInterrupt, TerminatedError)) and interrupts:
            was_lost.set()
            # Later, as in here it would be dropped again.
            again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), interrupts[-1]))
            again.daemon = True
            again.start()
        else:
            tell(lost)

    tell, sys.unraisablehook = sys.unraisablehook, say_again
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, interrupt)
    return interrupts


def _code_of(command: click.Command, args: Sequence[str] | None, interrupts: Sequence[int]) -> int:
    try:
        result = command.main(
            args=None if args is None else list(args), prog_name=None, standalone_mode=False
        )
    except click.exceptions.Exit as ended:  # --help and the like
        return int(ended.exit_code)
    except SystemExit:  # click's, where nobody reads any more what it prints
        if has_no_reader(1):
            return 0
        raise
    except (click.Abort, KeyboardInterrupt):
        return _interrupted(interrupts)
    except click.ClickException as error:
        error.show()
        return ConfigError.exit_code
    except RedlineError as error:
        _say(str(error))
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the last resort, which keeps what it caught
        return _unexpected(error, interrupts)
    return result if isinstance(result, int) else 0


def _unexpected(error: Exception, interrupts: Sequence[int]) -> int:
    if interrupts:  # what an interrupt breaks on its way is no error of its own
        return _interrupted(interrupts)
    if isinstance(error, BrokenPipeError) and has_no_reader(1):
        return 0
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        place = error.filename or "a file, or standard output,"
        _say(
            f"{place} cannot be written or read ({error.strerror}); expected room and permission "
            "there; see to them, or name another place"
        )
        return ConfigError.exit_code
    if "py4j" in sys.modules and (told := _of_spark(error)) is not None:
        _say(str(told))
        return told.exit_code
    _say(f"unexpected error: {type(error).__name__}: {_words(error)}\n{_keep()}")
    return UNEXPECTED


def _of_spark(error: Exception) -> RedlineError | None:
    """The end of Spark's driver, where this goes back to it."""
    from jobs.spark.failures import failure_of

    return failure_of(error)


def _words(error: Exception) -> str:
    """What an error says; one of Java's asks a JVM for it, which may be gone."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the error that is told is the first one
        return "it has no words"


def _interrupted(signals: Sequence[int]) -> int:
    is_terminated = any(number != signal.SIGINT for number in signals)
    word = "terminated" if is_terminated else "interrupted"
    _say(f"{word}; what was finished before is kept")
    return TerminatedError.exit_code if is_terminated else INTERRUPTED


def _say(text: str) -> None:
    # Not at the top: what a terminal needs would be half of the time of `--version`.
    from jobs.console.events import Level, Notice
    from jobs.console.printing import make_reporter

    with make_reporter() as reporter:
        reporter.report(Notice(Level.ERROR, text))


def _keep() -> str:
    """Write the traceback being handled to a file, for a bug report; says where it is."""
    try:
        path = cache_dir() / "last-error.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(traceback.format_exc(), encoding="utf-8", errors="backslashreplace")
    except OSError as error:  # then the terminal is the only place left
        return f"It could not be kept in a file ({error}):\n{traceback.format_exc()}"
    return f"The traceback is in {path}"
