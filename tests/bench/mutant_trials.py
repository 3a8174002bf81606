"""Trials of mutants: the tests that call the changed function run until one of them fails.

Each trial is a fork of the process that collected the tests. Limits are CPU time and seconds in
which the fork runs, so that a busy or stopped machine kills no mutant.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

import click
import pytest
from mutmut.mutation import trampoline

STATS = "stats"
"""The name with which mutmut notes the functions that a test calls; no mutant is active."""
CPU_S, MORE_CPU, PATIENCE_S, SLOWER = 20, 5, 60, 20
"""A test may take 5 times its usual CPU time and 20 s, within 20 times this time and 60 s."""
BUDGET_S = 10.0
"""The usual CPU time of the tests that a mutant meets: those that call the fewest functions."""
MEMORY_KB = 8_000_000


class Trials:
    """A plugin of pytest that tries mutants instead of running each test once.

    Args:
        drawn: name of each mutant, its function, and the test that runs first.
        tried: takes the status and the failed test of one mutant after the other.
    """

    def __init__(
        self, drawn: list[tuple[str, str, str]], tried: Callable[[str, str], None]
    ) -> None:
        self.drawn, self.tried = drawn, tried
        self.result = Path("mutants/trial.json").absolute()
        self.usual_s: dict[str, float] = {}
        self.failed: list[str] = []
        self.called: set[str] = set()
        self.test, self.began_s, self.limit_s, self.ticks = "", 0.0, 0.0, 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Search no smaller example than the one that failed."""
        from hypothesis import Phase, settings  # pytest changes the module's assertions first

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", settings.get_profile("repeatable"), phases=phases)
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
            click.echo(f"\n{report.nodeid}\n{report.longreprtext}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Find the tests of each function, then try the mutants."""
        measured = self._measure(session.items)
        self.usual_s = {test: each["cpu_s"] for test, each in measured.items()}
        callers = defaultdict[str, list[pytest.Item]](list)
        for item in sorted(session.items, key=lambda each: len(measured[each.nodeid]["called"])):
            for function in measured[item.nodeid]["called"]:
                callers[function].append(item)
        for name, function, first in self.drawn:
            items = self._affordable(callers[function], first)
            trial = self._fork(name, items) if items else {"status": "no tests", "test": ""}
            self.tried(trial["status"], trial["test"])
        return True

    def _affordable(self, items: list[pytest.Item], first: str) -> list[pytest.Item]:
        chosen, left_s = list[pytest.Item](), BUDGET_S
        for item in sorted(items, key=lambda each: each.nodeid != first):
            if not chosen or self.usual_s[item.nodeid] <= left_s:
                left_s -= self.usual_s[item.nodeid]
                chosen.append(item)
        return chosen

    def _measure(self, items: list[pytest.Item]) -> dict[str, Any]:
        """The CPU time of each test and the functions that it calls, from an earlier run if its
        file is the same; a test that fails without a mutant calls none."""
        cache = Path("measured.json")
        kept = json.loads(cache.read_text(encoding="utf-8")) if cache.exists() else {}
        hashes = {path: sha256(path.read_bytes()).hexdigest() for path in {e.path for e in items}}
        keys = {each.nodeid: f"{hashes[each.path]} {each.nodeid}" for each in items}
        new = self._fork(STATS, [each for each in items if keys[each.nodeid] not in kept])
        kept |= {keys[test]: each for test, each in new["measured"].items()}
        cache.write_text(json.dumps(kept), encoding="utf-8")
        return {test: kept[key] for test, key in keys.items()}

    def _fork(self, name: str, items: list[pytest.Item]) -> dict[str, Any]:
        self.result.write_text('{"status": "killed", "test": ""}', encoding="utf-8")
        if not (process := os.fork()):
            try:
                os.setsid()
                self._choose(name)
                signal.signal(signal.SIGALRM, self._tick)
                signal.setitimer(signal.ITIMER_REAL, 1, 1)
                self._run(items, name == STATS)
            finally:
                os._exit(1)
        os.waitpid(process, 0)
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)  # what a test left
        trial: dict[str, Any] = json.loads(self.result.read_text(encoding="utf-8"))
        return trial

    def _choose(self, name: str) -> None:
        """Activate a mutant in this process and in those that it starts."""
        os.environ["MUTANT_UNDER_TEST"] = name
        vars(trampoline).update(
            get_mutant_under_test=lambda: name,
            record_trampoline_hit=lambda function, caller=None: self.called.add(function),
        )

    def _run(self, items: list[pytest.Item], goes_on: bool) -> None:
        measured: dict[str, Any] = {}
        for item, following in zip(items, [*items[1:], None], strict=False):
            self.called.clear()
            self.test, self.began_s, self.ticks = item.nodeid, time.process_time(), 0
            self.limit_s = MORE_CPU * self.usual_s.get(item.nodeid, PATIENCE_S)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            fails = item.nodeid in self.failed
            if fails and not goes_on:
                self._end(status="killed", test=item.nodeid)
            called = [] if fails else sorted(self.called)
            cpu_s = round(time.process_time() - self.began_s, 3)
            measured[item.nodeid] = {"cpu_s": cpu_s, "called": called}
        self._end(status="survived", test="", measured=measured)

    def _tick(self, *_: object) -> None:
        self.ticks += 1
        used_s = time.process_time() - self.began_s
        is_late = self.ticks > PATIENCE_S + SLOWER * self.limit_s or os.getppid() == 1
        is_large = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > MEMORY_KB
        if used_s > CPU_S + self.limit_s or is_late or is_large:
            self._end(status="timeout", test=self.test)

    def _end(self, **result: object) -> NoReturn:
        self.result.write_text(json.dumps(result), encoding="utf-8")
        os._exit(0)
