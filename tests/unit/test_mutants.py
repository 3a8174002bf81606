"""Mutants: what is changed, which tests are asked, and how a change is put in place."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
from coverage import CoverageData

from tests.bench import covering as covering_module
from tests.bench import mutants
from tests.bench.covering import Covering, RecordedTest, importers, read_results, renewed
from tests.bench.forked import own, put_in_place
from tests.bench.mutants import (
    KILLED,
    SURVIVED,
    TIMEOUT,
    UNTESTED,
    Outcome,
    State,
    Tree,
    modules,
    tried,
)
from tests.bench.mutations import Mutation, difference, mutated, mutations_of, sample_of
from tests.support.commands import ROOT

pytestmark = pytest.mark.long  # of a tool that only developers run

SOURCE = '''"""Text."""

from __future__ import annotations

import functools

__all__ = ["larger"]
LIMIT = 10


@functools.cache
def larger(a: int, b: int = 3) -> int:
    """Text with a < b."""
    if a < b:
        return b + 1
    if a > LIMIT:
        raise ValueError(f"{a + 1} is too much")
    return sum([a], start=0)


class Counter:
    step = 2

    def up(self) -> int:
        return self.step * 2


def endless(a: int) -> int:
    while a > 0:
        a -= 1
    return a
'''
TESTS = """
from search import things

def test_larger():
    assert things.larger(1, 3) == 4

def test_limit():
    assert things.LIMIT == 10

def test_that_fails_as_it_is():
    assert things.larger(1, 3) == 5

def test_endless():
    assert things.endless(3) == 0
"""


def mutation(line: int, kind: str, source: str = SOURCE) -> Mutation:
    """The first of this kind on a line."""
    return next(
        each
        for each in mutations_of("search/things.py", source)
        if each.line == line and each.kind == kind
    )


# --- what is changed --------------------------------------------------------------------------


def test_each_mutation_changes_one_place_and_compiles() -> None:
    found = mutations_of("search/things.py", SOURCE)
    assert len({each.key for each in found}) == len(found) > 10
    for each in found:
        changed = mutated(SOURCE, each)
        compile(changed, "things.py", "exec")
        was = [line for line in difference(SOURCE, changed).splitlines() if line[0] == "-"]
        assert was == [f"-{SOURCE.splitlines()[each.line - 1]}"], each


def test_what_says_something_and_does_nothing_is_left_alone() -> None:
    lines = {each.line for each in mutations_of("search/things.py", SOURCE)}
    texts = SOURCE.splitlines()
    assert not [texts[line - 1] for line in lines if "Text" in texts[line - 1]]
    assert not [texts[line - 1] for line in lines if texts[line - 1].startswith(("import", "@"))]
    assert not [texts[line - 1] for line in lines if "raise" in texts[line - 1]]
    assert not [texts[line - 1] for line in lines if "__all__" in texts[line - 1]]


def test_an_argument_goes_only_where_it_may_have_a_default() -> None:
    gone = [
        mutated(SOURCE, each).splitlines()[each.line - 1].strip()
        for each in mutations_of("search/things.py", SOURCE)
        if each.kind == "arg_removal"
    ]
    assert gone == ["return sum([a], )"] or gone == ["return sum([a])"]


def test_a_mutation_knows_its_lines_and_whether_they_run_at_import() -> None:
    limit = next(each for each in mutations_of("p.py", SOURCE) if each.line == 8)
    assert (limit.lines, limit.at_import) == ((8, 8), True)
    default = next(each for each in mutations_of("p.py", SOURCE) if each.line == 12)
    assert default.at_import, "defaults are evaluated once"
    compared = next(each for each in mutations_of("p.py", SOURCE) if each.line == 14)
    assert not compared.at_import
    of_class = next(each for each in mutations_of("p.py", SOURCE) if each.line == 22)
    assert of_class.at_import


def test_a_sample_is_the_same_each_time_and_as_large_as_there_are_mutations(
    tmp_path: Path,
) -> None:
    place = tmp_path / "things.py"
    place.write_text(SOURCE)
    everything = sample_of([place], tmp_path, seed=1, size=10_000)
    assert everything == sorted(mutations_of("things.py", SOURCE))
    one, again = (sample_of([place], tmp_path, 1, 5) for _ in range(2))
    assert one == again != sample_of([place], tmp_path, 2, 5)
    assert len(set(one)) == 5


def test_a_mutation_of_a_module_that_has_changed_since_is_refused() -> None:
    last = mutations_of("p.py", SOURCE)[-1]
    with pytest.raises(ValueError, match="has changed since"):
        mutated("a = 1\n", last)


def test_what_decides_is_there_to_be_mutated() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in modules(ROOT)}
    assert {"search/bisect.py", "metrics/judging/verdict.py"} <= found
    assert all((ROOT / path).is_file() for path in found)


# --- which tests are asked --------------------------------------------------------------------


def covering(**lines: list[int]) -> Covering:
    """Tests t/test_a.py::one of given lines of search/things.py, each taking as long as its name
    says in seconds after an underscore.
    """
    tests = {
        f"t/test_{name.split('_')[0]}.py::{name}": RecordedTest(
            float(name.rsplit("_", 1)[1]), {"search/things.py": ran}
        )
        for name, ran in lines.items()
    }
    return Covering(tests, {})


def test_tests_that_run_the_lines_are_asked_and_no_others() -> None:
    record = covering(a_one_1=[14], a_two_1=[13], b_one_1=[30, 31])
    asked = record.running(mutation(14, "swap_op"), ROOT)
    assert asked == [["t/test_a.py::a_one_1"]]


def test_files_that_are_about_the_lines_come_first_and_quick_tests_before_slow_ones() -> None:
    record = covering(
        a_x_9=[14], a_y_1=[99], b_slow_5=[14], b_quick_1=[14], c_z_2=[14], c_w_2=[1], c_v_2=[1]
    )
    first, later = record.running(mutation(14, "swap_op"), ROOT)
    assert first == ["t/test_b.py::b_quick_1", "t/test_b.py::b_slow_5"]
    assert later == ["t/test_c.py::c_z_2", "t/test_a.py::a_x_9"]
    assert record.seconds(later) == [2.0, 9.0]


def test_what_runs_at_import_asks_all_tests_of_the_module_and_of_those_that_import_it(
    tmp_path: Path,
) -> None:
    for name, text in (("line", "from search.bisect import Bisection\n"), ("nothing", "")):
        (tmp_path / "search").mkdir(exist_ok=True)
        (tmp_path / "search" / f"{name}.py").write_text(text)
    record = covering(a_one_1=[14])
    record.tests["t/test_b.py::other"] = RecordedTest(1.0, {"search/line.py": [1]})
    record.tests["t/test_c.py::no"] = RecordedTest(1.0, {"search/nothing.py": [1]})
    at_import = Mutation("search/bisect.py", 1, 0, 0, "number", (1, 1), True)
    assert "search/line.py" in importers("search/bisect.py", tmp_path)
    assert record.running(at_import, tmp_path) == [["t/test_b.py::other"]]


def test_a_record_comes_back_from_its_file(tmp_path: Path) -> None:
    assert Covering.read(tmp_path / "none").tests == {}
    record = covering(a_one_1=[14])
    record.digests["modules"] = "d"
    record.write(tmp_path / "record.json")
    again = Covering.read(tmp_path / "record.json")
    assert (again.tests, again.digests) == (record.tests, record.digests)


def test_only_tests_that_passed_are_recorded_with_the_lines_of_all_their_parts(
    tmp_path: Path,
) -> None:
    data = CoverageData(str(tmp_path / "data"))
    for context, line in (("setup", 3), ("run", 4)):
        data.set_context(f"t/test_a.py::one|{context}")
        data.add_lines({"search/things.py": [line]})
    data.write()
    (tmp_path / "results.xml").write_text(
        '<testsuites><testsuite name="pytest">'
        '<testcase classname="t.test_a" name="one" time="0.5"/>'
        '<testcase classname="t.test_a" name="two" time="0.5"><failure/></testcase>'
        "</testsuite></testsuites>"
    )
    found = read_results(tmp_path / "data", tmp_path / "results.xml")
    assert found == {"t/test_a.py::one": RecordedTest(0.5, {"search/things.py": [3, 4]})}


def test_only_what_has_changed_is_recorded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit, module = tmp_path / "tests" / "unit", tmp_path / "search" / "things.py"
    for place in (unit, module.parent):
        place.mkdir(parents=True)
    module.write_text(SOURCE)
    for name in "ab":
        (unit / f"test_{name}.py").write_text("")
    recorded: list[list[str]] = []

    def record(_tree: Path, files: list[str], *_: object) -> dict[str, RecordedTest]:
        recorded.append(files)
        return {f"{file}::one": RecordedTest(1.0, {}) for file in files}

    monkeypatch.setattr(covering_module, "_recorded", record)

    def renew(old: Covering) -> Covering:
        return renewed(old, tmp_path, tmp_path, [module], 1)

    first = renew(Covering({}, {}))
    assert renew(first).tests == first.tests
    (unit / "test_b.py").write_text("# other")
    second = renew(first)
    (unit / "test_a.py").unlink()
    assert renew(second).tests.keys() == {"tests/unit/test_b.py::one"}
    module.write_text(SOURCE + "\n")
    renew(second)
    both = ["tests/unit/test_a.py", "tests/unit/test_b.py"]
    assert recorded == [both, both[1:], both[1:]]


# --- how it is put in place -------------------------------------------------------------------


def made(source: str) -> ModuleType:
    module = ModuleType("things")
    exec(compile(source, "/things.py", "exec", dont_inherit=True), module.__dict__)
    return module


def functions_of(module: Any) -> list[FunctionType]:
    wrapped = [getattr(each, "__wrapped__", each) for each in vars(module).values()]
    return [each for each in wrapped if isinstance(each, FunctionType)] + [module.Counter.up]


def put(line: int, kind: str) -> tuple[bool, Any]:
    module: Any = made(SOURCE)
    changed = mutated(SOURCE, mutation(line, kind))
    return put_in_place(functions_of(module), "/things.py", SOURCE, changed), module


def test_functions_get_their_new_code_those_of_classes_and_wrappers_too() -> None:
    is_put, module = put(14, "swap_op")
    assert is_put
    assert module.larger(3, 3) == 4, "a <= b"
    number = next(e for e in mutations_of("search/things.py", SOURCE) if e.line == 25)
    again: Any = made(SOURCE)
    assert put_in_place(functions_of(again), "/things.py", SOURCE, mutated(SOURCE, number))
    assert again.Counter().up() != 4


def test_what_runs_at_import_is_not_taken_for_put_in_place() -> None:
    for line in (8, 12, 22):
        changed = next(e for e in mutations_of("search/things.py", SOURCE) if e.line == line)
        module: Any = made(SOURCE)
        before = [own(each.__code__) for each in functions_of(module)]
        assert not put_in_place(functions_of(module), "/p", SOURCE, mutated(SOURCE, changed))
        assert [own(each.__code__) for each in functions_of(module)] == before


def test_functions_that_look_alike_are_told_apart_or_left_alone() -> None:
    source = "one, two = (lambda a: a + 1), (lambda a: a + 1)\n"
    module: Any = made(source)
    functions = [module.one, module.two]
    is_put = put_in_place(functions, "/things.py", source, source.replace("1)\n", "2)\n"))
    assert (module.one(0), module.two(0)) == ((1, 2) if is_put else (1, 1))
    assert not put_in_place([], "/things.py", SOURCE, mutated(SOURCE, mutation(14, "swap_op")))
    assert not put_in_place(functions, "/things.py", source, source), "nothing is changed"


# --- the whole ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    for name, text in (("search/things.py", SOURCE), ("tests/unit/test_things.py", TESTS)):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
    return root


def test_mutants_are_killed_by_what_sees_them_and_live_where_nothing_does(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "CPU_LEAST_S", 1.0)
    name = "tests/unit/test_things.py"
    lines = {"test_larger": [14, 15], "test_limit": [8], "test_endless": [29, 30, 31],
             "test_that_fails_as_it_is": [14, 15]}  # fmt: skip
    tests = {
        f"{name}::{test}": RecordedTest(0.0, {"search/things.py": ran})
        for test, ran in lines.items()
    }
    tree = Tree(project, [name], ["pytest"])

    def outcome(line: int) -> Outcome:
        found = mutations_of("search/things.py", SOURCE)
        first = next(each for each in found if each.line == line)
        return tried(first, Covering(tests, {}), project, tree)

    try:
        seen = outcome(15)  # b + 1 → b - 1
        assert seen.outcome == KILLED
        assert seen.by.startswith(f"FAILED {name}::test_larger"), "not by one that always fails"
        assert outcome(8).outcome == KILLED, "LIMIT, in a run of its own"
        assert outcome(25).outcome == UNTESTED
        del tests[f"{name}::test_that_fails_as_it_is"]
        assert outcome(14).outcome == SURVIVED, "a <= b: no test has a == b"
        endless = next(
            each
            for each in mutations_of("search/things.py", SOURCE)
            if "a += 1" in mutated(SOURCE, each)
        )
        assert tried(endless, Covering(tests, {}), project, tree).outcome == TIMEOUT
    finally:
        tree.close()
    assert (project / "search/things.py").read_text() == SOURCE, "taken back"


@pytest.mark.parametrize("conftest", ["import things", "pytest_plugins = ['things']"])
def test_a_module_without_which_no_test_can_be_collected_is_missed(
    tmp_path: Path, conftest: str
) -> None:
    name, module = "test_things.py", tmp_path / "things.py"
    for place, text in (
        (name, "def test_limit(): pass"),
        ("conftest.py", conftest),
        ("things.py", "LIMIT = 10"),
    ):
        (tmp_path / place).write_text(text.replace("search", "sys"))
    tree = Tree(tmp_path, [name], ["pytest"])
    try:
        module.write_text("raise TypeError('no')")
        outcome, _ = tree.run([f"{name}::test_limit"], [0.0], None)
    finally:
        tree.close()
    assert outcome == KILLED


def test_what_is_known_of_mutants_is_kept_and_the_last_word_holds(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    for outcome in (SURVIVED, KILLED):
        state.add(Outcome("key", "digest", outcome, "by", 1.0))
    state.add(Outcome("key", "other", SURVIVED, "by", 1.0))
    again = State(tmp_path / "state")
    assert {key: one.outcome for key, one in again.known.items()} == {
        ("key", "digest"): KILLED, ("key", "other"): SURVIVED,
    }  # fmt: skip
