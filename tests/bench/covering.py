"""Which unit tests run which lines, and for how long: recorded once, renewed file by file.

Coverage.py keeps the name of the test with each line that it runs. A test file that has changed
since is recorded again; modules that have changed make the whole record stale.
"""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from coverage import CoverageData
from junitparser import JUnitXml

from metrics.common.errors import RedlineError
from tests.bench.mutations import Mutation

_QUICK_S = 3.0
"""What the tests that are tried first take together, at least [s]."""


@dataclass(frozen=True)
class RecordedTest:
    """A test that passes.

    Attributes:
        seconds: it took, set-up and all, when it was recorded.
        lines: it runs, by the path of their module.
    """

    seconds: float
    lines: dict[str, list[int]]


class Covering:
    """The record of all unit tests.

    Args:
        digests: of each test file and of all modules as they were recorded.
    """

    def __init__(self, tests: dict[str, RecordedTest], digests: dict[str, str]) -> None:
        self.tests = tests
        self.digests = digests

    @classmethod
    def read(cls, place: Path) -> Covering:
        """The record in a file, or an empty one."""
        if not place.exists():
            return cls({}, {})
        stored = json.loads(place.read_text(encoding="utf-8"))
        return cls({name: RecordedTest(**test) for name, test in stored["tests"].items()},
                   stored["digests"])  # fmt: skip

    def write(self, place: Path) -> None:
        """Keep it in a file."""
        tests = {name: asdict(test) for name, test in self.tests.items()}
        place.write_text(json.dumps({"tests": tests, "digests": self.digests}), encoding="utf-8")

    def running(self, mutation: Mutation, root: Path) -> list[list[str]]:
        """Tests that run what a mutation changes: those to try first, then all others.

        What runs at import shows in all tests of the module and of modules that import it.
        """
        if mutation.at_import:
            modules = {mutation.path, *importers(mutation.path, root)}
            found = {name for name, test in self.tests.items() if modules & test.lines.keys()}
        else:
            first, last = mutation.lines
            found = {
                name
                for name, test in self.tests.items()
                if any(first <= line <= last for line in test.lines.get(mutation.path, ()))
            }
        return self._in_turn(found)

    def _in_turn(self, names: Iterable[str]) -> list[list[str]]:
        """Quickest first, by file: files that are about these lines before those that pass by."""
        by_file = defaultdict(list)
        for name in names:
            by_file[file_of(name)].append(name)
        sizes = Counter(file_of(name) for name in self.tests)
        files = sorted(by_file, key=lambda file: (-len(by_file[file]) / sizes[file], file))
        now: list[str] = []
        while files and sum(self.tests[name].seconds for name in now) < _QUICK_S:
            now += sorted(by_file[files.pop(0)], key=self._turn)
        later = sorted((name for file in files for name in by_file[file]), key=self._turn)
        return [part for part in (now, later) if part]

    def _turn(self, name: str) -> tuple[float, str]:
        return self.tests[name].seconds, name

    def seconds(self, names: Iterable[str]) -> list[float]:
        """What each of these took."""
        return [self.tests[name].seconds for name in names]


def importers(path: str, root: Path) -> set[str]:
    """Paths of the modules that import from this one."""
    name = path.removesuffix(".py").replace("/", ".")
    found = set()
    for folder in ("search", "metrics", "jobs"):
        for module in (root / folder).rglob("*.py"):
            tree = ast.parse(module.read_text(encoding="utf-8"))
            if any(isinstance(node, ast.ImportFrom) and node.module == name
                   for node in ast.walk(tree)):  # fmt: skip
                found.add(module.relative_to(root).as_posix())
    return found


def file_of(test: str) -> str:
    """Path of the file that a test is in."""
    return test.partition("::")[0]


def digest(paths: Iterable[Path]) -> str:
    """Of the content of files, in their order."""
    whole = hashlib.sha256()
    for path in paths:
        whole.update(path.read_bytes())
    return whole.hexdigest()


def renewed(old: Covering, root: Path, tree: Path, modules: Sequence[Path],
            processes: int) -> Covering:  # fmt: skip
    """The record as of now: of what it lacks, the tests are run in `tree`, a copy of `root`."""
    files = sorted((root / "tests" / "unit").glob("test_*.py"))
    now = {path.relative_to(root).as_posix(): digest([path]) for path in files}
    now["modules"] = digest(sorted(modules))
    if old.digests.get("modules") != now["modules"]:
        old = Covering({}, {})
    stale = [name for name in now if name != "modules" and old.digests.get(name) != now[name]]
    kept = {
        name: test
        for name, test in old.tests.items()
        if file_of(name) in now and file_of(name) not in stale
    }
    if not stale:
        return Covering(kept, now)
    folders = sorted({path.parent.relative_to(root).as_posix() for path in modules})
    return Covering({**kept, **_recorded(tree, stale, folders, processes)}, now)


def _recorded(
    tree: Path, files: Sequence[str], folders: Sequence[str], processes: int
) -> dict[str, RecordedTest]:
    settings, data, results = tree / "cov.ini", tree / "cov.data", tree / "results.xml"
    sources = "".join(f"\n    {folder}" for folder in folders)
    settings.write_text(
        f"[run]\nrelative_files = true\ndata_file = {data}\nsource ={sources}\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(processes), "-p",
               "no:cacheprovider", "--cov", f"--cov-config={settings}", "--cov-context=test",
               "--cov-report=", f"--junitxml={results}", *files]  # fmt: skip
    ended = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if ended.returncode not in {0, 1} or not results.exists():
        said = ended.stdout[-4_000:] + ended.stderr[-4_000:]
        raise RedlineError(f"the unit tests could not be recorded:\n{said}")
    return read_results(data, results)


def read_results(data: Path, results: Path) -> dict[str, RecordedTest]:
    """The tests that passed, from what coverage.py and pytest left behind."""
    covered = CoverageData(str(data))
    covered.read()
    lines: Mapping[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(covered.measured_files()):
        for line, contexts in covered.contexts_by_lineno(path).items():
            for test in {context.partition("|")[0] for context in contexts} - {""}:
                lines[test][path].append(line)
    tests = {}
    for suite in JUnitXml.fromfile(str(results)):
        for case in suite:
            if case.is_passed:
                name = f"{case.classname.replace('.', '/')}.py::{case.name}"
                tests[name] = RecordedTest(case.time, dict(lines[name]))
    return tests
