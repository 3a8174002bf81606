"""The entry point of all jobs: catches all errors, and chooses the exit code."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from jobs.console.streams import has_no_reader, settle_streams
from jobs.setup.places import DATABRICKS, cache_dir
from metrics.common.errors import ConfigError, RedlineError, TerminatedError
from metrics.reporting import kept_script
from metrics.reporting.files import write_private

if TYPE_CHECKING:
    import psutil

_log = logging.getLogger(__name__)

INTERRUPTED = 130
UNEXPECTED = 1
_REPEAT_S = 0.05
_STARTERS_CHECK_S = 1.0
_HANGUPS = (signal.SIGHUP, signal.SIGINT)
"""Signals that a detached job ignores: `nohup` makes a job ignore SIGHUP, and `&` in a script makes
a job ignore SIGINT.
"""
_MACHINE_ERRORS = {
    errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.EISDIR, errno.ELOOP, errno.EMFILE,
    errno.ENAMETOOLONG, errno.ENFILE, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS,
}  # fmt: skip
"""Error numbers of problems that a user can fix on the machine, without knowledge of this code."""


def run(command: click.Command, args: Sequence[str] | None = None) -> None:
    """Run a job's command, and exit with its exit code. On Databricks, the function returns after a
    successful job, because Databricks treats every exit as a failure.

    Exit codes: 0 done, 1 unexpected error, 2 bad usage or configuration, 3 no conclusion,
    4 a limit that you set is exceeded (regression, or too little headroom), 5 stopped by a guard,
    75 try again later (the cluster is in use or down), 130 interrupted, 143 terminated.
    """
    # Libraries log nothing to the terminal. A run writes their logs to a file in its folder.
    logging.getLogger().addHandler(logging.NullHandler())
    kept_script.keep_in(cache_dir() / "charts")
    interrupts = _handle_signals()
    is_over = threading.Event()
    threading.Thread(target=_end_with_starters, args=(is_over,), daemon=True).start()
    code = _code_of(command, args, interrupts)
    is_over.set()
    settle_streams()
    # Databricks treats every SystemExit as a failure, even 0.
    if code or DATABRICKS not in os.environ:
        sys.exit(code)


def _handle_signals() -> list[int]:
    """Let signals interrupt the main thread. The returned list collects the received signals."""
    interrupts: list[int] = []
    was_lost = threading.Event()

    def interrupt(number: int, _frame: FrameType | None) -> None:
        interrupts.append(number)
        is_repeated = was_lost.is_set()
        was_lost.clear()
        if number == signal.SIGTERM and interrupts.count(number) > 1 and not is_repeated:
            return  # the job is ending already, and a process of its group repeats the signal
        raise KeyboardInterrupt if number == signal.SIGINT else TerminatedError

    def repeat_signal(lost: sys.UnraisableHookArgs) -> None:
        """Repeat a signal if Python dropped the signal's exception in a finalizer, for example in
        py4j.
        """
        if isinstance(lost.exc_value, (KeyboardInterrupt, TerminatedError)) and interrupts:
            was_lost.set()
            # The signal is delayed, because an exception that is raised here would be dropped, too.
            timer = threading.Timer(_REPEAT_S, os.kill, (os.getpid(), interrupts[-1]))
            timer.daemon = True
            timer.start()
        else:
            default_hook(lost)

    default_hook, sys.unraisablehook = sys.unraisablehook, repeat_signal
    for name in {signal.SIGTERM, *_HANGUPS} - _ignored(os.getpid()):
        signal.signal(name, interrupt)
    return interrupts


def _end_with_starters(is_over: threading.Event) -> None:
    """Watch the parent processes of the job, and send SIGTERM to the job if a parent ends.

    For example, a parent process that gets SIGKILL cannot end the job itself.
    """
    import psutil  # imported here, because short commands do not need it

    starters = _starters()
    while starters and not is_over.wait(_STARTERS_CHECK_S):
        for each in starters:
            with suppress(psutil.NoSuchProcess):
                if each.is_running() and each.status() != psutil.STATUS_ZOMBIE:
                    continue
            _log.warning("process %d, which started this job, has ended, so the job ends", each.pid)
            os.kill(os.getpid(), signal.SIGTERM)
            return


def _starters() -> list[psutil.Process]:
    """The parent processes whose end also ends the job. The list does not go beyond the process
    that started the session.

    If a parent has detached the job by `nohup`, or by `&` in a script, the list contains neither
    this parent nor the parent's own parents. A job is detached if it ignores a signal that the
    parent does not ignore. The list also contains neither the shell of a terminal nor this shell's
    parents, because the terminal itself sends SIGHUP to the job's process group.
    """
    import psutil

    found: list[psutil.Process] = []
    own = psutil.Process()
    with suppress(psutil.Error, OSError):
        ignored = _ignored(own.pid)
        for each in own.parents():
            is_shell = own.terminal() is not None and os.getpgid(each.pid) != os.getpgrp()
            if each.pid == 1 or is_shell or ignored - _ignored(each.pid):
                break
            found.append(each)
            if os.getsid(each.pid) != os.getsid(0):
                break
    return found


def _ignored(pid: int) -> set[signal.Signals]:
    """The signals of `_HANGUPS` that a process ignores. On a system without /proc, only the signals
    of this process are known, and the result for any other process is empty.
    """
    if pid == os.getpid():
        return {each for each in _HANGUPS if signal.getsignal(each) is signal.SIG_IGN}
    with suppress(FileNotFoundError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigIgn:"):
                mask = int(line.split()[1], 16)
                return {each for each in _HANGUPS if mask >> (each - 1) & 1}
    return set()


def _code_of(command: click.Command, args: Sequence[str] | None, interrupts: Sequence[int]) -> int:
    try:
        result = command.main(
            args=None if args is None else list(args), prog_name=None, standalone_mode=False
        )
    except click.exceptions.Exit as ended:  # for example after --help
        return int(ended.exit_code)
    except SystemExit:  # click raises it when its output pipe is closed
        if has_no_reader(1):
            return 0
        raise
    except (click.Abort, KeyboardInterrupt):
        return _interrupted(interrupts)
    except click.ClickException as error:
        error.show()
        return ConfigError.exit_code
    except RedlineError as error:
        _report_error(str(error))
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the last handler, which saves the traceback
        return _unexpected(error, interrupts)
    return result if isinstance(result, int) else 0


def _unexpected(error: Exception, interrupts: Sequence[int]) -> int:
    if interrupts:  # the interrupt caused the error
        return _interrupted(interrupts)
    if isinstance(error, BrokenPipeError) and has_no_reader(1):
        return 0
    if isinstance(error, OSError) and error.errno in _MACHINE_ERRORS:
        place = error.filename or "a file, or standard output,"
        _report_error(
            f"{place} cannot be written or read ({error.strerror}); expected free space and "
            "permission; provide both, or name another place"
        )
        return ConfigError.exit_code
    if "py4j" in sys.modules:
        from jobs.spark.failures import failure_of

        if (failure := failure_of(error)) is not None:
            _report_error(str(failure))
            return failure.exit_code
    _report_error(
        f"unexpected error: {type(error).__name__}: {_message(error)}\n{_save_traceback()}"
    )
    return UNEXPECTED


def _message(error: Exception) -> str:
    """The message of an error; `no message` if it cannot be read. A Java error reads its message
    from the JVM, and the JVM may have ended.
    """
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the first error is the one to report
        return "no message"


def _interrupted(signals: Sequence[int]) -> int:
    is_terminated = any(number != signal.SIGINT for number in signals)
    word = "terminated" if is_terminated else "interrupted"
    _report_error(f"{word}; all finished trials are kept")
    return TerminatedError.exit_code if is_terminated else INTERRUPTED


def _report_error(text: str) -> None:
    # Imported here, because these modules would double the duration of `--version`.
    from jobs.console.events import Level, Notice
    from jobs.console.printing import make_reporter

    with make_reporter() as reporter:
        reporter.report(Notice(Level.ERROR, text))


def _save_traceback() -> str:
    """Write the current traceback to a file for a bug report, and return a sentence that names the
    file.
    """
    try:
        path = cache_dir() / "last-error.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, traceback.format_exc())
    except OSError as error:  # the message is the only remaining place for the traceback
        return f"The traceback could not be written to a file ({error}):\n{traceback.format_exc()}"
    return f"The traceback is in {path}; add it to a bug report"
