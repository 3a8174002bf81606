"""`redline plan`: from a run, a known limit or a sweep to brokers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from click.testing import Result as Outcome
from syrupy.assertion import SnapshotAssertion

from jobs.plan import plan
from metrics.common.errors import ConfigError, NoConclusionError
from metrics.comparing.figures import ACKNOWLEDGED, LIMIT, Result
from metrics.features.sweep.answer import SweepAnswer
from metrics.reporting.summary import RunSummary, write_summary
from metrics.tables.boundary import make_boundary
from metrics.traffic.axes import NP
from metrics.windows.use import Resource
from search.model import Bracket
from tests.support.frozen import lost_keys
from tests.support.rows import traffic
from tests.support.sweeps import load_answer

POINT = make_boundary(
    Bracket(720, 756), NP, traffic(1, 1_000, 250.0, brokers=3), trials=4, limited_by=Resource.DISK
)
SUMMARY = RunSummary(
    "run-1", "a", "b", "c", "w", "strict", (replace(POINT, goal="strict"),), 3,
    caveat="a small cluster", replication_factor=3,
)  # fmt: skip


def _run(*options: str) -> Outcome:
    return CliRunner().invoke(plan, options, standalone_mode=False, catch_exceptions=False)


LOAD = ("--mb-per-s", "600", "--message-bytes", "1000")


def undated(printed: str) -> str:
    return re.sub(r"^\d{4}-\S+Z ", "", printed, flags=re.MULTILINE)


def _planned(folder: Path, summary: RunSummary, *more: str) -> dict[str, Any]:
    write_summary(summary, folder / "summary.json")
    answer = folder / "plan.json"
    _run("--run", str(folder), *LOAD, "--json", str(answer), *more)
    read: dict[str, Any] = json.loads(answer.read_text())
    assert not lost_keys("plan.json", read)
    return read


def test_the_limits_of_a_run_give_the_number_of_brokers(tmp_path: Path) -> None:
    found = _planned(tmp_path, SUMMARY, "--offline", "0.2")
    answer = found["answer"]
    assert answer["limit_mb_per_s_per_broker"] == pytest.approx(60.0)
    # 54.4 MB/s on any day: 12 brokers, and a fifth of 15 may be offline.
    assert (answer["brokers"], answer["offline"], answer["binds_first"]) == (15, 3, "disk")
    assert found["caveat"] == "a small cluster"


def test_a_plan_uses_the_lower_end_and_states_it(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    sure = replace(SUMMARY.boundaries[0], load_low=600.0, load_high=750.0, interval_max=0.1)
    wide = replace(SUMMARY, boundaries=(sure,))
    found = _planned(tmp_path, wide, "--offline", "0.2")["answer"]
    assert (found["brokers"], found["brokers_for_limit"]) == (17, 13)
    assert found["limit_mb_per_s_per_broker"] == pytest.approx(60.0)
    assert found["low_mb_per_s_per_broker"] == pytest.approx(48.8, rel=0.001)
    printed = _run("--run", str(tmp_path), *LOAD, "--offline", "0.2").output
    assert undated(printed) == snapshot


def test_a_plan_rests_on_what_disks_were_proven_to_write(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """64 MB/s as a burst and 10 MB/s on disk, as in docs/steady.md."""
    (point,) = SUMMARY.boundaries
    burst = replace(point, mb_per_s=64.0, mb_per_s_per_broker=64.0 / 3, proven_on_disk=False)
    cases = {
        "steady": replace(burst, lasted=False, steady_load=112, steady_mb_per_s=10.0),
        "burst": replace(burst, proof_note="the brokers' hosts show no disks"),
        "proven": replace(burst, proven_on_disk=True),
    }
    found = {
        name: _planned(tmp_path, replace(SUMMARY, boundaries=(each,)))["answer"]
        for name, each in cases.items()
    }
    assert {name: each["brokers"] for name, each in found.items()} == {
        "steady": 199, "burst": 32, "proven": 32,
    }  # fmt: skip
    assert found["steady"]["assumptions"][0] == snapshot(name="steady")
    assert found["burst"]["assumptions"][0] == snapshot(name="burst")
    assert not any("burst" in each for each in found["proven"]["assumptions"])


def test_a_plan_can_use_a_known_limit() -> None:
    for load, brokers in (("600", 10), ("60000000", 1_000_000)):
        printed = _run("--limit", "60", "--mb-per-s", load, "--message-bytes", "1000").output
        assert re.search(rf"brokers to buy +{brokers}\n", printed)


def test_a_plan_of_more_than_a_million_brokers_is_refused() -> None:
    for options in (
        "--limit 1e-300 --mb-per-s 600",
        "--limit 5e-324 --mb-per-s 600 --headroom 0.9",
        "--limit 60 --mb-per-s 1e308 --growth 10",
        "--limit 60 --mb-per-s 60000061",
        "--limit 60 --mb-per-s 600 --link-mbit-per-s 1e-9",
    ):
        with pytest.raises(ConfigError, match="more than 1,000,000 brokers") as error:
            _run(*options.split(), "--message-bytes", "1000")
        assert len(str(error.value)) < 300
        assert "correct the demand, the limit per broker or the margins" in str(error.value)


def test_a_run_or_a_demand_that_no_plan_can_use_is_refused(tmp_path: Path) -> None:
    open_end = replace(SUMMARY, boundaries=(replace(SUMMARY.boundaries[0], gave_up="cap"),))
    cases: list[tuple[RunSummary, tuple[str, ...], str]] = [
        (SUMMARY, ("--goal", "tolerant"), "has the goals strict"),
        (replace(SUMMARY, boundaries=()), (), "has the goals none"),
        (replace(SUMMARY, replication_factor=0), (), "older version"),
        (open_end, (), "no closed bracket"),
        (SUMMARY, ("--limit", "60"), "--run, --limit"),
    ]
    for summary, options, message in cases:
        with pytest.raises(ConfigError, match=message):
            _planned(tmp_path, summary, *options)
    with pytest.raises(ConfigError, match="does not exist"):
        _run("--run", str(tmp_path / "none"), *LOAD)


# --- the smallest of the measured set-ups that is sufficient for a load -----------


BROKERS, HEAP = "cluster.testbed.brokers", "cluster.testbed.properties.heap_mb"


def limit(
    brokers: int, heap_mb: int, mb_per_s: float, repeat: int = 1, message_bytes: int = 1000
) -> Result:
    settings = {BROKERS: f"{brokers}", HEAP: f"{heap_mb}"}
    return Result(settings, repeat, message_bytes, mb_per_s, 0.95 * mb_per_s, 1.05 * mb_per_s)


RESULTS = (
    limit(2, 256, 18.0), limit(1, 512, 10.0), limit(1, 512, 12.0, repeat=2), limit(1, 256, 6.0),
    limit(2, 512, 20.0),
    Result({BROKERS: "3", HEAP: "256"}, 1, 1000, None, why="nothing was sustained"),
)  # fmt: skip
ANSWER = SweepAnswer(
    "s1", "a", "b", "done", 0, None, "a small cluster", "machines", "", "", "limit", "MB/s", LIMIT,
    {BROKERS: ("1", "2", "3"), HEAP: ("256", "512")}, 2, RESULTS,
)  # fmt: skip


def run_setups(folder: Path, *options: str, answer: SweepAnswer = ANSWER) -> str:
    (folder / "sweep.json").write_text(answer.document(), encoding="utf-8")
    return _run("--sweep", str(folder), *options).output


def run_plan(folder: Path, *options: str, answer: SweepAnswer = ANSWER) -> str:
    return run_setups(folder, "--message-bytes", "1000", *options, answer=answer)


def test_a_file_on_a_full_disk_hides_no_missing_conclusion(tmp_path: Path) -> None:
    """/dev/full can be opened, and every write to it fails."""
    with pytest.raises(NoConclusionError, match="none of the measured set-ups"):
        run_plan(tmp_path, "--mb-per-s", "500", "--json", "/dev/full")
    with pytest.raises(ConfigError, match=r"--json /dev/full cannot be written \(No space"):
        run_plan(tmp_path, "--mb-per-s", "5", "--json", "/dev/full")


def test_the_smallest_sufficient_set_up_is_named(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    file = tmp_path / "plan.json"
    assert undated(run_plan(tmp_path, "--gb-per-day", "600", "--json", str(file))) == snapshot
    document = json.loads(file.read_text())
    assert document["smallest"]["settings"] == {BROKERS: "1", HEAP: "512"}
    assert document["mb_per_s_wanted"] == pytest.approx(600 / 86.4)
    printed = run_plan(tmp_path, "--mb-per-s", "5", "--growth", "0.5", "--headroom", "0.25")
    assert "brokers 2, heap_mb 256" in printed
    with pytest.raises(NoConclusionError, match=r"the largest set-up carries 19\.0 of 30\.0 MB/s"):
        run_plan(tmp_path, "--mb-per-s", "30")


def test_the_only_size_of_a_sweep_needs_no_option(tmp_path: Path) -> None:
    """Such as the mean size of a mix."""
    printed = run_setups(tmp_path, "--mb-per-s", "7")
    assert "smallest measured set-up that carries this load: brokers 1, heap_mb 512" in printed
    two = replace(ANSWER, results=(*RESULTS, limit(1, 256, 5.0, message_bytes=100)))
    with pytest.raises(ConfigError, match="--message-bytes is missing and the limits come from"):
        run_setups(tmp_path, "--mb-per-s", "7", answer=two)
    with pytest.raises(ConfigError, match="--scale is 2 and the limits come from sweep s1"):
        run_setups(tmp_path, "--scale", "2", answer=two)


def test_options_that_no_sweep_can_answer_are_refused(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    one = "--mb-per-s 1"
    other = replace(ANSWER, asks="load", kind=ACKNOWLEDGED)
    more = ("--offline 0.2", "--gb-per-day 1", "--limit 5", "--message-bytes 100")
    cases = [*((f"{one} {each}", ANSWER) for each in more), (one, other)]
    sentences = []
    for options, answer in cases:
        with pytest.raises(ConfigError) as error:
            run_plan(tmp_path, *options.split(), answer=answer)
        sentences += [str(error.value)]
    assert sentences == snapshot


def test_the_answer_of_a_sweep_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "sweep.json"
    file.write_text(ANSWER.document(), encoding="utf-8")
    assert load_answer(file) == ANSWER
    file.write_text('{"results": []}', encoding="utf-8")
    with pytest.raises(ConfigError, match="is not the answer of a sweep"):
        load_answer(file)
