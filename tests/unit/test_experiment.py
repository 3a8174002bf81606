"""Experiments: their files, their cases, the order of measurement, and their messages."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import click.testing
import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.campaigns.sweep.body import SweepRun
from jobs.campaigns.sweep.cases import load_sweep
from jobs.config.experiment import CASES_MAX
from jobs.config.files import names_in
from jobs.sweep import sweep
from metrics.common.errors import ConfigError
from metrics.comparing.sweeps import CASE
from tests.bench.experiments import REMARK, page_of, remark_in
from tests.support.commands import ROOT

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
@pytest.mark.parametrize("name", names_in("experiments"))
@pytest.mark.parametrize("quick", [False, True])
def test_the_experiments_of_the_project_are_valid(name: str, quick: bool) -> None:
    loaded = load_sweep(name, quick=quick)
    assert len(loaded.cases) >= 2
    assert loaded.experiment.description
    assert len({case.name for case in loaded.cases}) == len(loaded.cases)


def test_each_experiment_of_the_project_is_in_the_docs_with_its_question() -> None:
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    for name in names_in("experiments"):
        found = load_sweep(name).experiment
        row = f"| [{name}](experiments/{name}.md) | {found.description} |"
        assert f"{row} {found.published or '–'} |" in text, name


@pytest.mark.parametrize("name", names_in("experiments"))
def test_each_page_of_an_experiment_follows_from_its_data(name: str) -> None:
    pages = ROOT / "docs" / "experiments"
    text = (pages / f"{name}.md").read_text(encoding="utf-8")
    remark = remark_in(text)
    assert text == page_of(name, remark), "python -m tests.bench.experiments --pages renews it"
    assert (pages / "images" / f"{name}.svg").read_text(encoding="utf-8").startswith("<svg")
    known = set(figures_in(text.split(REMARK)[0]))
    assert remark and set(figures_in(remark)) <= known, "a remark has no figure of its own"


def figures_in(text: str) -> list[str]:
    return re.findall(r"\d+(?:[.,]\d+)*", re.sub(r"`[^`]*`|\([a-z-]+\.md\)|KIP-\d+", "", text))


def test_a_grid_has_each_value_with_each_other(tmp_path: Path) -> None:
    loaded = load_sweep(write(tmp_path, WHOLE))
    assert [case.name for case in loaded.cases][:3] == [
        "acks=1 num.io.threads=1",
        "acks=1 num.io.threads=2",
        "acks=1 num.io.threads=4",
    ]
    assert len(loaded.cases) == 6
    last = loaded.cases[-1].config
    assert last.workload.producer.acks == "all"
    assert last.cluster.testbed is not None
    assert last.cluster.testbed.properties["num.io.threads"] == "4"


def test_one_at_a_time_changes_one_axis_of_the_base(tmp_path: Path) -> None:
    loaded = load_sweep(write(tmp_path, WHOLE + "combine: one at a time\n"))
    assert [case.name for case in loaded.cases] == [
        "acks=1 num.io.threads=1",
        "acks=all num.io.threads=1",
        "acks=1 num.io.threads=2",
        "acks=1 num.io.threads=4",
    ]


def test_cases_may_be_listed(tmp_path: Path) -> None:
    listed = f"cases:\n  - {{{ACKS}: all}}\n  - {{{ACKS}: '1'}}\n"
    assert [case.name for case in load_sweep(write(tmp_path, listed)).cases] == [
        "acks=all",
        "acks=1",
    ]


def test_listed_cases_may_have_names(tmp_path: Path) -> None:
    listed = f"cases:\n  - {{name: safe, {ACKS}: all}}\n  - {{name: fast, {ACKS}: '1'}}\n"
    loaded = load_sweep(write(tmp_path, listed))
    assert [case.name for case in loaded.cases] == ["safe", "fast"]
    assert [dict(case.shown) for case in loaded.cases] == [{CASE: "safe"}, {CASE: "fast"}]
    assert [dict(case.settings) for case in loaded.cases] == [{ACKS: "all"}, {ACKS: "1"}]
    assert [case.config.workload.producer.acks for case in loaded.cases] == ["all", "1"]


def test_options_take_precedence_over_the_file_but_not_over_its_axes(tmp_path: Path) -> None:
    path = write(tmp_path, WHOLE + "set: [workload.producer.linger_ms=3]\n")
    options = ("workload.producer.linger_ms=7", f"{ACKS}=0")
    loaded = load_sweep(path, options, repeats=2)
    assert {case.config.workload.producer.linger_ms for case in loaded.cases} == {7}
    assert {case.config.workload.producer.acks for case in loaded.cases} == {"1", "all"}
    assert loaded.experiment.repeats == 2


VOLUME = "set: [workload.trial.volume_bytes=1000000]\n"
BOTH_ACKS = f"axes:\n  {ACKS}: ['1', all]\n"
READ_VOLUME = f"{VOLUME.rstrip()[:-1]}, workload.consumers.groups=1]\n"
ALONE = "set: [workload.topic.replication_factor=1]\n"
WRONG = {
    "nothing varies": ("workload: 1kB\n", "neither axes nor cases"),
    "both": (f"axes: {{{ACKS}: ['1', all]}}\ncases: [{{{ACKS}: all}}]\n", "both axes and cases"),
    "one value": (f"axes:\n  {ACKS}: [all]\n", "two values or more"),
    "a value twice": (f"axes:\n  {ACKS}: [all, all]\n", "two values or more"),
    "no list": (f"axes:\n  {ACKS}: all\n", "two values or more"),
    "null": (f"axes:\n  {ACKS}: [all, null]\n", "two values or more"),
    "no full path": (
        "axes:\n  producer.acks: ['1', all]\n",
        r"line 2: producer\.acks is not the full path",
    ),
    "a broker property": (
        "axes:\n  num.io.threads: [1, 2]\n",
        r"line 2: num\.io\.threads is not the full",
    ),
    "unknown key": ("axes:\n  workload.producer.ack: ['1', all]\n", r"nearest known key is acks"),
    "wrong value": (f"axes:\n  {ACKS}: ['1', two]\n", r"case acks=two: .*0, 1 or all|acks=two"),
    "too many replicas": (
        "axes:\n  workload.topic.replication_factor: [3, 4]\n",
        "at most as many replicas as brokers",
    ),
    "batch above the request": (
        "axes:\n  workload.producer.batch_size: [1000, 20000000]\n",
        "case batch_size=20000000",
    ),
    "unknown file": ("workload: none\naxes:\n  " + ACKS + ": ['1', all]\n", "none"),
    "unknown top key": ("axis: {}\n", "axis is an unknown key; the nearest known key is axes"),
    "unlike cases": (
        f"cases:\n  - {{{ACKS}: all}}\n  - {{workload.producer.linger_ms: 1}}\n",
        "same keys",
    ),
    "empty case": ("cases:\n  - {}\n", "same keys"),
    "only names": ("cases:\n  - {name: one}\n  - {name: two}\n", "same keys"),
    "one name": (f"cases:\n  - {{name: one, {ACKS}: all}}\n  - {{{ACKS}: '1'}}\n", "same keys"),
    "two of one name": (
        f"cases:\n  - {{name: one, {ACKS}: all}}\n  - {{name: one, {ACKS}: '1'}}\n",
        "two cases have the same name",
    ),
    "no name": (
        f"cases:\n  - {{name: one, {ACKS}: all}}\n  - {{name: null, {ACKS}: '1'}}\n",
        "a case has the name None; expected a text",
    ),
    "two names": (
        f"cases:\n  - {{name: one, {ACKS}: all}}\n  - {{name: two, {ACKS}: all}}\n",
        "two cases have the same settings",
    ),
    "load without one": (f"asks: load\naxes:\n  {ACKS}: ['1', all]\n", "expected load: NUMBER"),
    "load of a limit": (f"load: 4\naxes:\n  {ACKS}: ['1', all]\n", "asks is limit"),
    "two sizes of a load": (
        f"asks: load\nload: 4\nworkload: demo\naxes:\n  {ACKS}: ['1', all]\n",
        "has 3 sizes; expected one",
    ),
    "two goals": (f"goal: default,strict\naxes:\n  {ACKS}: ['1', all]\n", "expected one"),
    "too many": (
        f"axes:\n  workload.producer.linger_ms: {list(range(CASES_MAX + 1))}\n",
        f"at most {CASES_MAX}",
    ),
    "a quick value that is none": (
        f"quick_axes:\n  {ACKS}: ['0', all]\naxes:\n  {ACKS}: ['1', all]\n",
        "expected some of the values that axes has of it",
    ),
    "a quick axis that is none": (
        f"quick_axes:\n  {THREADS}: [1, 2]\naxes:\n  {ACKS}: ['1', all]\n",
        "expected some of the values that axes has of it",
    ),
    "a volume without one": (
        f"asks: fill\nload: 4\naxes:\n  {ACKS}: ['1', all]\n",
        r"workload\.trial\.volume_bytes None; expected a volume",
    ),
    "a volume of a limit": (
        f"{VOLUME}axes:\n  {ACKS}: ['1', all]\n",
        "expected none; change one of them",
    ),
    "no reader": (
        f"asks: drain\nload: 4\n{VOLUME}axes:\n  {ACKS}: ['1', all]\n",
        r"workload\.consumers\.groups 0; expected 1 or more",
    ),
    "a volume more than once": (
        f"asks: fill\nload: 4\ntrials: 2\n{VOLUME}axes:\n  {ACKS}: ['1', all]\n",
        "set repeats instead",
    ),
    "cold without a drain": (
        f"cold: true\naxes:\n  {ACKS}: ['1', all]\n",
        "cold is given, and asks is limit",
    ),
    "cold on running brokers": (
        f"asks: drain\nload: 4\ncold: true\ncluster: example\n{READ_VOLUME}{BOTH_ACKS}",
        "asks: drain on a testbed",
    ),
    "no survivor": (
        f"asks: failover\nload: 4\n{ALONE}axes:\n  {ACKS}: ['1', all]\n",
        "with replication_factor 1; expected a testbed of 2 brokers or more",
    ),
    "several states": (
        f"set: [goal.search.brokers_offline=1]\naxes:\n  {ACKS}: ['1', all]\n",
        "brokers_offline is 1; expected none in an experiment",
    ),
    "question": (f"asks: most\naxes:\n  {ACKS}: ['1', all]\n", "asks is"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_experiment_is_refused(
    tmp_path: Path, name: str, snapshot: SnapshotAssertion
) -> None:
    text, words = WRONG[name]
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=words) as caught:
        load_sweep(path)
    assert str(caught.value).replace(str(tmp_path), "…") == snapshot
    assert "mine.yaml" in str(caught.value) or name == "unknown file"
    assert caught.value.exit_code == 2


def test_quick_takes_fewer_values_and_its_own_settings(tmp_path: Path) -> None:
    text = WHOLE + f"quick: [workload.trial.measure_s=3]\nquick_axes:\n  {THREADS}: [1, 4]\n"
    path = write(tmp_path, text)
    full, quick = load_sweep(path), load_sweep(path, quick=True)
    assert (len(full.cases), len(quick.cases)) == (6, 4)
    assert {case.settings[THREADS] for case in quick.cases} == {"1", "4"}
    assert {case.config.workload.trial.measure_s for case in quick.cases} == {3.0}


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
