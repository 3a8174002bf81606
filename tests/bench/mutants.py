"""Mutants: does a unit test fail when the code that decides is changed in one place?

    python -m tests.bench.mutants --seed 1 --sample 300

Draws mutations of search/, of what judges trials and of what decides about delivery, makes each
in a copy of the checkout, and runs the unit tests that run the changed lines until one fails.
A process that has collected the tests puts the change in place in a fork; what survives there, or
runs at import, is tried in a run of pytest of its own. What is known is kept in .cache/mutants, so
that a run goes on where it was ended; `--again` asks the survivors again, after tests were added.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

import click

from metrics.common.errors import RedlineError
from tests.bench.covering import Covering, digest, file_of, renewed
from tests.bench.forked import READY, UNCHANGEABLE
from tests.bench.mutations import Mutation, difference, mutated, sample_of
from tests.support.commands import ROOT

FOLDERS = ("search", "metrics/judging", "metrics/windows")
DELIVERY = tuple(
    f"jobs/engine/{name}.py"
    for name in (
        "consuming/ledger",
        "producing/account",
        "producing/batch",
        "producing/delivery",
        "producing/metadata",
        "producing/pending",
        "producing/producer",
        "producing/producer_id",
        "producing/reach",
        "producing/retries",
        "producing/schedule",
        "task/partitions",
        "task/plan",
        "task/window",
    )
)
HEAVY = ("pytest", "hypothesis.strategies", "numpy", "pydantic", "click.testing", "rich.console",
         "rich.live", "ruamel.yaml", "kafka", "kafka.protocol.metadata", "jinja2", "altair",
         "psutil", "cryptography.x509", "hdrh.histogram", "mpmath", "jsonschema")  # fmt: skip
"""Modules of others that unit tests import, in a time that is worth to be saved."""
PLACE = ROOT / ".cache" / "mutants"
KILLED, SURVIVED, TIMEOUT, UNTESTED = "killed", "survived", "timeout", "untested"
_HUNG_S = 240.0
"""Only ends tests that wait for ever: this, and ten times what they took when recorded [s]."""
CPU_LEAST_S = 10.0
"""A test may take this, and three times what it took when it was recorded [CPU-s]."""
_PASSED, _FAILED, _INTERRUPTED, _NO_TESTS = 0, 1, 2, 5
"""pytest's exit codes; a module that cannot be imported interrupts it."""
_UNLOADED = ("ImportError while loading conftest", "Error while loading plugin")
"""What pytest says where what all tests need cannot be imported."""
_ENDED = frozenset({-signal.SIGXCPU, -signal.SIGKILL})
"""By the bounds of CPU time and of memory."""
Change = tuple[str, str, str]
"""Path of a module, and its text before and after."""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    Attributes:
        digest: of the module that was changed.
        outcome: killed, survived, timeout or untested.
        by: what pytest said last.
    """

    key: str
    digest: str
    outcome: str
    by: str
    seconds: float


class State:
    """What is known of mutants, line by line in a file; the last line of a mutant holds."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.known: dict[tuple[str, str], Outcome] = {}
        if place.exists():
            for line in place.read_text(encoding="utf-8").splitlines():
                self._take(Outcome(**json.loads(line)))

    def add(self, outcome: Outcome) -> None:
        """Know of one more."""
        self._take(outcome)
        with self._place.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(outcome)) + "\n")

    def _take(self, outcome: Outcome) -> None:
        self.known[outcome.key, outcome.digest] = outcome


def modules(root: Path) -> list[Path]:
    """Those that are mutated."""
    found = [path for folder in FOLDERS for path in (root / folder).glob("*.py")]
    return sorted([*found, *(root / name for name in DELIVERY)])


def copied(root: Path, tree: Path) -> Path:
    """A copy of what Git knows of a checkout, and of what it would take in."""
    shutil.rmtree(tree, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in listed.stdout.split("\0"):
        if name and (root / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, tree / name)
    if (root / ".cache" / "jars").exists():
        (tree / ".cache").mkdir()
        (tree / ".cache" / "jars").symlink_to(root / ".cache" / "jars")
    return tree


class Runner:
    """A process of `tests.bench.forked` in a copy of the checkout.

    Args:
        imports: modules that take long.
        files: whose tests it collects; without any, each run imports and collects anew.
    """

    def __init__(self, place: Path, imports: Sequence[str], files: Sequence[str] = ()) -> None:
        self.log = place / "mutant.log"
        hears, told = os.pipe()
        script = ROOT / "tests" / "bench" / "forked.py"
        with (place / f"{'anew' if not files else 'collected'}.log").open("w") as said:
            self._process = subprocess.Popen(
                [sys.executable, str(script), str(place), str(told), ",".join(imports), *files],
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.PIPE, stdout=said, stderr=said, text=True, pass_fds=[told],
            )  # fmt: skip
        os.close(told)
        self._answers = os.fdopen(hears, encoding="utf-8")

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
        self._answers.close()

    def await_ready(self) -> None:
        """Wait until it has read what stays the same."""
        if self._answers.readline() != READY:
            raise RedlineError(f"no process could be made that runs tests; {self.log.parent}/*.log")

    def run(
        self, tests: Sequence[str], seconds: Sequence[float], changed: Change | None = None
    ) -> int | None:
        """Run tests until one fails: an exit code of pytest or of `forked`, None for a hung one."""
        cpu_s = [CPU_LEAST_S + 3 * took_s for took_s in seconds]
        request = {"log": str(self.log), "tests": tests, "cpu_s": cpu_s, "changed": changed,
                   "timeout_s": _HUNG_S + 10 * sum(seconds)}  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._answers.readline()
        if not answer:
            raise RedlineError(f"the process that runs tests has ended; {self.log.parent}/*.log")
        code: int | None = json.loads(answer)
        return code


class Tree:
    """A copy of the checkout in which mutants are made, and processes that run its tests.

    Args:
        files: with the unit tests.
        imports: modules of others that these need and that take long.
    """

    def __init__(self, place: Path, files: Sequence[str], imports: Sequence[str] = HEAVY) -> None:
        self.place = place
        self._collected = Runner(place, imports, files)
        self._anew = Runner(place, imports)
        for runner in (self._collected, self._anew):
            runner.await_ready()
        self._sound: dict[str, bool] = {}

    def close(self) -> None:
        """End the processes."""
        self._collected.close()
        self._anew.close()

    def run(
        self, tests: Sequence[str], seconds: Sequence[float], changed: Change | None
    ) -> tuple[str, str]:
        """Run tests until one fails; the outcome, and what pytest said last.

        Args:
            seconds: what each of the tests took when it was recorded.
            changed: to be put in place; without it, the folder is read anew.
        """
        runner = self._anew if changed is None else self._collected
        took_s = dict(zip(tests, seconds, strict=True))
        while True:
            code = runner.run([*took_s], [*took_s.values()], changed)
            said = runner.log.read_text(encoding="utf-8", errors="replace")
            lines = [line for line in said.splitlines() if line.strip()] or ["no output"]
            by = next((line for line in lines if line.startswith(("FAILED", "ERROR"))), lines[-1])
            failed = by.removeprefix("FAILED ").partition(" - ")[0]
            if changed is None or code != _FAILED or self._is_sound(failed):
                return _outcome(code, said), by[:300]
            del took_s[failed]  # it fails without the change too

    def _is_sound(self, test: str) -> bool:
        if test not in self._sound:
            self._sound[test] = self._collected.run([test], [_HUNG_S]) == _PASSED
        return self._sound[test]


def _outcome(code: int | None, said: str) -> str:
    if code is None or code in _ENDED or "Failed: Timeout" in said:
        return TIMEOUT
    if code in {_PASSED, _NO_TESTS, UNCHANGEABLE}:
        return SURVIVED
    if code in {_FAILED, _INTERRUPTED} or code < 0:
        return KILLED
    if any(text in said for text in _UNLOADED):
        return KILLED
    raise RedlineError(f"pytest ended with {code}:\n{said[-3_000:]}")


def tried(mutation: Mutation, covering: Covering, root: Path, tree: Tree) -> Outcome:
    """Make one mutant in a tree, run what would notice it, and take it back."""
    began_s = time.monotonic()
    source = (root / mutation.path).read_text(encoding="utf-8")
    changed = mutated(source, mutation)
    outcome, by = UNTESTED, "no unit test runs these lines"
    place = tree.place / mutation.path
    in_place: Change = (str(place), source, changed)
    place.write_text(changed, encoding="utf-8")
    try:
        for change in [None] if mutation.at_import else [in_place, None]:
            for part in covering.running(mutation, root):
                outcome, by = tree.run(part, covering.seconds(part), change)
                if outcome != SURVIVED:
                    break
            if outcome != SURVIVED:
                break
    finally:
        place.write_text(source, encoding="utf-8")
    seconds = time.monotonic() - began_s
    return Outcome(mutation.key, digest([root / mutation.path]), outcome, by, seconds)


def all_tried(
    mutations: Sequence[Mutation],
    trees: Sequence[Tree],
    covering: Covering,
    root: Path,
    told: Callable[[Mutation, Outcome], None],
) -> None:
    """Try these, one at a time in each tree."""
    free: SimpleQueue[Tree] = SimpleQueue()
    for tree in trees:
        free.put(tree)

    def one(mutation: Mutation) -> None:
        tree = free.get()
        try:
            told(mutation, tried(mutation, covering, root, tree))
        finally:
            free.put(tree)

    with ThreadPoolExecutor(len(trees)) as pool:
        for done in [pool.submit(one, mutation) for mutation in mutations]:
            done.result()


def show(mutation: Mutation, outcome: Outcome, root: Path) -> None:
    """Tell of one that lives: where, and what is changed."""
    source = (root / mutation.path).read_text(encoding="utf-8")
    click.echo(f"{outcome.outcome}: {mutation.key} ({outcome.seconds:.0f} s, {outcome.by})")
    click.echo(difference(source, mutated(source, mutation)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 when all of the sample have been tried."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--sample", type=int, default=300, help="how many mutants")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--again", action="store_true", help="try again what was not killed")
    parser.add_argument("--only", default="", help="those whose path begins so")
    asked = parser.parse_args(arguments)
    PLACE.mkdir(parents=True, exist_ok=True)
    places = [copied(ROOT, PLACE / f"tree-{number}") for number in range(asked.processes)]
    record = PLACE / "covering.json"
    covering = renewed(Covering.read(record), ROOT, places[0], modules(ROOT), asked.processes)
    covering.write(record)
    sample = sample_of(modules(ROOT), ROOT, asked.seed, asked.sample)
    chosen = [each for each in sample if each.path.startswith(asked.only)]
    state = State(PLACE / "mutants.jsonl")
    digests = {path: digest([ROOT / path]) for path in {each.path for each in chosen}}

    def known(mutation: Mutation) -> Outcome | None:
        return state.known.get((mutation.key, digests[mutation.path]))

    def is_open(mutation: Mutation) -> bool:
        outcome = known(mutation)
        return outcome is None or (asked.again and outcome.outcome != KILLED)

    def told(mutation: Mutation, outcome: Outcome) -> None:
        state.add(outcome)
        if outcome.outcome in {SURVIVED, UNTESTED}:
            show(mutation, outcome, ROOT)

    for mutation in chosen:
        outcome = known(mutation)
        if outcome and not is_open(mutation) and outcome.outcome in {SURVIVED, UNTESTED}:
            show(mutation, outcome, ROOT)
    files = sorted({file_of(name) for name in covering.tests})
    trees = [Tree(place, files) for place in places]
    try:
        all_tried([each for each in chosen if is_open(each)], trees, covering, ROOT, told)
    finally:
        for tree in trees:
            tree.close()
    ends = Counter(outcome.outcome for each in chosen if (outcome := known(each)) is not None)
    click.echo(
        f"seed {asked.seed}: {sum(ends.values())} mutants, "
        + ", ".join(f"{ends[each]} {each}" for each in (KILLED, TIMEOUT, SURVIVED, UNTESTED))
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
