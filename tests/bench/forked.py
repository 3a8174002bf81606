"""Runs of pytest, each in a fork of a process that has done before what stays the same.

    python tests/bench/forked.py FOLDER ANSWERS MODULE,… < requests           # imports these
    python tests/bench/forked.py FOLDER ANSWERS MODULE,… FILE … < requests    # and collects these

A script on its own, which imports nothing of this project: what a fork tests is the project in
FOLDER. MODULE is one that takes long to import, and ANSWERS the number of an open file. A request
is a line of JSON; the answer is a line with an exit code of pytest or `UNCHANGEABLE`, negative for
a signal, or `null` where time was up. Before the first it says `READY`: what stays the same has
been read, so the folder may change.

Where tests are collected, a fork puts a change of a module in place: functions get their new code,
and nothing is imported or collected again. What was computed at import stays as it was.
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import os
import resource
import signal
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from types import CodeType, FunctionType
from typing import IO, Any

MEMORY_BYTES = 8 << 30
"""A mutant that never stops to collect things ends here."""
UNCHANGEABLE = 100
"""Exit code: new code of functions alone is not what this change does."""
NO_TESTS = 5
"""Exit code, as pytest has it."""
READY = "ready\n"
_LOOK_S = 0.01


def bound(request: Mapping[str, Any]) -> None:
    """Make this process, a fork, lead a group of its own within bounds, and speak into the log."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)


def bound_cpu(more_s: float) -> None:
    """A signal ends this process once it has used so much more [CPU-s]."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + more_s), hard))


def run_anew(request: Mapping[str, Any]) -> int:
    """A whole run of pytest; its exit code."""
    bound(request)
    bound_cpu(sum(request["cpu_s"]))
    return pytest_main(["-x", "--tb=line", *request["tests"]], Ends())


class Ends:
    """A plugin of pytest: once all is said the process ends, whatever its threads wait for."""

    def __init__(self) -> None:
        self._code: int | None = None

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Called once the tests are over."""
        self._code = int(exitstatus)

    def pytest_unconfigure(self) -> None:
        """Called after the summary."""
        if self._code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self._code)


def pytest_main(arguments: Sequence[str], *plugins: object) -> int:
    """A run of pytest in this process; its exit code."""
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "-W",
               "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]  # fmt: skip
    return int(importlib.import_module("pytest").main([*options, *arguments], plugins=plugins))


class Collected:
    """A plugin of pytest: where the tests would run, it answers requests instead."""

    def __init__(self, requests: IO[str], answers: IO[str]) -> None:
        self._requests = requests
        self._answers = answers
        self._items: dict[str, Any] = {}
        self._functions: dict[str, list[FunctionType]] = {}
        self._failed: list[str] = []

    def pytest_runtestloop(self, session: Any) -> bool:
        """Called once all tests are collected; what answers first is the last to be asked."""
        self._items = {item.nodeid: item for item in session.items}
        self._functions = functions_by_file()
        answer(self._requests, self._answers, self._run)
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called with what became of each part of a test."""
        if report.failed:
            self._failed.append(f"FAILED {report.nodeid} - {last_line(report.longreprtext)}")

    def _run(self, request: Mapping[str, Any]) -> int:
        bound(request)
        if request["changed"] is not None:
            path, before, after = request["changed"]
            if not put_in_place(self._functions.get(path, []), path, before, after):
                return UNCHANGEABLE
        items = [self._items[name] for name in request["tests"] if name in self._items]
        cpu_s = dict(zip(request["tests"], request["cpu_s"], strict=True))
        for item, following in zip_longest(items, items[1:]):
            bound_cpu(cpu_s[item.nodeid])
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                os.write(1, "\n".join(["", *self._failed]).encode())
                return 1
        return 0 if items else NO_TESTS


def last_line(text: str) -> str:
    """The last line of a text that is not empty."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def functions_by_file() -> dict[str, list[FunctionType]]:
    """All functions that there are, by the path of their file; of methods and wrappers too."""
    found = defaultdict(list)
    for each in gc.get_objects():
        if type(each) is FunctionType:
            found[each.__code__.co_filename].append(each)
    return dict(found)


def put_in_place(functions: Sequence[FunctionType], path: str, before: str, after: str) -> bool:
    """Give the functions of a module their new code; False where that is not all there is to do.

    Args:
        path: that the functions' code names as its file.
        before, after: text of the module without and with the change.
    """
    old, new = list(codes(before, path)), list(codes(after, path))
    if [code.co_name for code in old] != [code.co_name for code in new]:
        return False  # some function came or went
    changed = {at for at in range(len(old)) if own(old[at]) != own(new[at])}
    places = [old.index(each.__code__) if each.__code__ in old else None for each in functions]
    held = {at for at in places if at is not None and old.count(old[at]) == 1}
    inside = {at for at in changed for outer in held if old[at] in inner(old[outer])}
    if not changed or not changed <= held | inside:
        return False  # what runs at import is changed, or nothing tells one function from another
    if any(old[at].co_freevars != new[at].co_freevars for at in held):
        return False
    for function, at in zip(functions, places, strict=True):
        if at in held:
            function.__code__ = new[at]
    return True


def codes(source: str, path: str) -> Iterator[CodeType]:
    """The code of a module and all that it holds, outer before inner."""
    module = compile(source, path, "exec", dont_inherit=True)
    yield module
    yield from inner(module)


def inner(code: CodeType) -> Iterator[CodeType]:
    """All code that a code holds, outer before inner."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from inner(constant)


def own(code: CodeType) -> tuple[Any, ...]:
    """What a code does itself, whatever the codes that it holds do."""
    constants = [(type(each), each) for each in code.co_consts if not isinstance(each, CodeType)]
    return (code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars)


def await_end(child: int, timeout_s: float) -> int | None:
    """The exit code of a run, negative for a signal; None when it took too long and was killed."""
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_LOOK_S)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def answer(
    requests: Iterable[str], answers: IO[str], run: Callable[[Mapping[str, Any]], int]
) -> None:
    """Answer requests until there are no more, each by a fork."""
    gc.freeze()
    answers.write(READY)
    answers.flush()
    for line in requests:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 3
            try:
                code = run(request)
            except BaseException:  # noqa: BLE001 - whatever it is, the log has it
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        answers.write(json.dumps(await_end(child, request["timeout_s"])) + "\n")
        answers.flush()


def main() -> None:
    """Answer requests until there are no more."""
    folder, told_to, modules, *files = sys.argv[1:]
    # Tests must not read what is meant for this process.
    asked_on = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name in modules.split(","):
        importlib.import_module(name)
    os.chdir(folder)
    sys.path[0], sys.argv = folder, ["pytest"]
    with os.fdopen(asked_on) as requests, os.fdopen(int(told_to), "w") as answers:
        if not files:
            answer(requests, answers, run_anew)
            return
        pytest_main(["-s", *files], Collected(requests, answers))


if __name__ == "__main__":
    main()
