"""Experiments: their files, their cases, the order of measurement, and their messages."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import click.testing
import pytest

from jobs.config.files import names_in
from jobs.features.sweep.cases import load_sweep
from jobs.features.sweep.sweep_run import SweepRun
from jobs.sweep import sweep
from metrics.comparing.figures import CASE
from tests.bench.experiments import PAGES, REMARK, index_page, page_of, remark_in

ACKS = "workload.producer.acks"
THREADS = "cluster.testbed.properties.num.io.threads"

WHOLE = f"""
workload: 1kB
repeats: 3
axes:
  {ACKS}: ["1", all]
  {THREADS}: [1, 2, 4]
"""


def write(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


# --- files --------------------------------------------------------------------


@pytest.mark.computes
def test_the_experiments_of_the_project_are_valid_and_in_the_docs_with_their_questions() -> None:
    for name in names_in("experiments"):
        for loaded in (load_sweep(name), load_sweep(name, quick=True)):
            assert len(loaded.cases) >= 2, name
            assert len({case.name for case in loaded.cases}) == len(loaded.cases), name
        found = loaded.experiment
        assert found.description, name
    assert (PAGES / "README.md").read_text(encoding="utf-8") == index_page()


def test_each_page_of_an_experiment_follows_from_its_data() -> None:
    for name in names_in("experiments"):
        text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
        remark = remark_in(text)
        assert text == page_of(name, remark), "python -m tests.bench.experiments --pages renews it"
        assert (PAGES / "images" / f"{name}.svg").read_text(encoding="utf-8").startswith("<svg")
        known = set(figures_in(text.split(REMARK)[0]))
        assert remark and set(figures_in(remark)) <= known, f"{name}: a figure of its own"


def figures_in(text: str) -> list[str]:
    return re.findall(r"\d+(?:[.,]\d+)*", re.sub(r"`[^`]*`|\([a-z-]+\.md\)|KIP-\d+", "", text))


def test_a_grid_has_each_value_with_each_other_or_changes_one_at_a_time(tmp_path: Path) -> None:
    grid = [("1", 1), ("1", 2), ("1", 4), ("all", 1), ("all", 2), ("all", 4)]
    single = [("1", 1), ("all", 1), ("1", 2), ("1", 4)]
    for more, expected in (("", grid), ("combine: one at a time\n", single)):
        cases = load_sweep(write(tmp_path, WHOLE + more)).cases
        names = [f"acks={acks} num.io.threads={threads}" for acks, threads in expected]
        assert [case.name for case in cases] == names
    last = cases[-1].config
    assert last.workload.producer.acks == "1"
    assert last.cluster.testbed is not None
    assert last.cluster.testbed.properties["num.io.threads"] == "4"


def test_listed_cases_may_have_names(tmp_path: Path) -> None:
    named = ["a", "b"], "name: a, ", "name: b, "
    for names, first, second in ((["acks=all", "acks=1"], "", ""), named):
        listed = f"cases:\n  - {{{first}{ACKS}: all}}\n  - {{{second}{ACKS}: '1'}}\n"
        cases = load_sweep(write(tmp_path, listed)).cases
        assert [case.name for case in cases] == names
        assert [dict(case.settings) for case in cases] == [{ACKS: "all"}, {ACKS: "1"}]
        assert [case.config.workload.producer.acks for case in cases] == ["all", "1"]
    assert [dict(case.shown) for case in cases] == [{CASE: "a"}, {CASE: "b"}]


def test_options_take_precedence_over_the_file_but_not_over_its_axes(tmp_path: Path) -> None:
    quick = f"quick: [workload.trial.measure_s=3]\nquick_axes:\n  {THREADS}: [1, 4]\n"
    path = write(tmp_path, WHOLE + "set: [workload.producer.linger_ms=3]\n" + quick)
    options = ("workload.producer.linger_ms=7", f"{ACKS}=0")
    loaded = load_sweep(path, options, repeats=2)
    assert {case.config.workload.producer.linger_ms for case in loaded.cases} == {7}
    assert {case.config.workload.producer.acks for case in loaded.cases} == {"1", "all"}
    assert (loaded.experiment.repeats, len(loaded.cases)) == (2, 6)
    cases = load_sweep(path, quick=True).cases
    assert len(cases) == 4
    assert {case.settings[THREADS] for case in cases} == {"1", "4"}
    assert {case.config.workload.trial.measure_s for case in cases} == {3.0}


# --- the order ----------------------------------------------------------------


def test_every_case_is_measured_once_in_each_repeat_and_brokers_start_once_a_cluster(
    tmp_path: Path,
) -> None:
    loaded = load_sweep(write(tmp_path, WHOLE))
    groups = list(SweepRun(loaded).schedule())
    assert len(groups) == 3 * 3
    everything = [turn for group in groups for turn in group]
    assert Counter(turn.case.name for turn in everything) == {c.name: 3 for c in loaded.cases}
    assert len({turn.name for turn in everything}) == len(everything)
    for group in groups:
        assert len({turn.case.settings[THREADS] for turn in group}) == 1
    orders = [[turn.case.name for turn in everything[n : n + 6]] for n in (0, 6, 12)]
    assert len(set(map(tuple, orders))) > 1, "each repeat has an order of its own"
    again = [turn.name for group in SweepRun(loaded).schedule() for turn in group]
    assert again == [turn.name for turn in everything], "the same when it is resumed"


def test_a_dry_run_shows_the_varied_keys_and_the_number_of_measurements(tmp_path: Path) -> None:
    text = f"workload: 1kB\ncluster: example\naxes:\n  {ACKS}: ['1', all]\n"
    done = click.testing.CliRunner().invoke(sweep, [write(tmp_path, text), "--dry-run"])
    assert done.exit_code == 0, done.output
    assert f"2 cases, 2 measurements; varied: {ACKS}: 1, all" in " ".join(done.output.split())
