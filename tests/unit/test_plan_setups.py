"""`redline plan --sweep`: the smallest of the measured set-ups that is sufficient for a load."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from jobs.plan import plan
from metrics.common.errors import ConfigError, NoConclusionError
from metrics.comparing.figures import ACKNOWLEDGED, LIMIT
from metrics.comparing.sweeps import Result
from metrics.planning.setups import setups_of
from metrics.reporting.sweep.answer import SweepAnswer, load_answer

BROKERS, HEAP = "cluster.testbed.brokers", "cluster.testbed.properties.heap_mb"


def limit(
    brokers: int, heap_mb: int, mb_per_s: float, repeat: int = 1, message_bytes: int = 1000
) -> Result:
    settings = {BROKERS: f"{brokers}", HEAP: f"{heap_mb}"}
    return Result(settings, repeat, message_bytes, mb_per_s, 0.95 * mb_per_s, 1.05 * mb_per_s)


RESULTS = (
    limit(2, 256, 18.0),
    limit(1, 512, 10.0),
    limit(1, 512, 12.0, repeat=2),
    limit(1, 256, 6.0),
    limit(2, 512, 20.0),
    Result({BROKERS: "3", HEAP: "256"}, 1, 1000, None, why="nothing was sustained"),
)
ANSWER = SweepAnswer(
    "s1", "a", "b", "done", 0, None, "a small cluster", "machines", "", "", "limit", "MB/s", LIMIT,
    {BROKERS: ("1", "2", "3"), HEAP: ("256", "512")}, 2, RESULTS,
)  # fmt: skip


def run_plan(folder: Path, *options: str, answer: SweepAnswer = ANSWER) -> str:
    (folder / "sweep.json").write_text(answer.document(), encoding="utf-8")
    command = ["--sweep", str(folder), "--message-bytes", "1000", *options]
    done = CliRunner().invoke(plan, command, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


def test_set_ups_are_listed_by_their_cost() -> None:
    found = setups_of(RESULTS, 1000)
    assert [(one.settings[BROKERS], one.settings[HEAP]) for one in found] == [
        ("1", "256"), ("1", "512"), ("2", "256"), ("2", "512"),
    ]  # fmt: skip
    assert [one.mb_per_s for one in found] == pytest.approx([5.7, 9.5, 17.1, 19.0])
    assert found[0].gb_per_day == pytest.approx(5.7 * 86.4)
    assert found[0].messages_per_minute == pytest.approx(5_700 * 60)


def test_a_file_on_a_full_disk_hides_no_missing_conclusion(tmp_path: Path) -> None:
    """/dev/full can be opened, and every write to it fails."""
    with pytest.raises(NoConclusionError, match="none of the measured set-ups"):
        run_plan(tmp_path, "--mb-per-s", "500", "--json", "/dev/full")
    with pytest.raises(ConfigError, match=r"--json /dev/full cannot be written \(No space"):
        run_plan(tmp_path, "--mb-per-s", "5", "--json", "/dev/full")


def test_the_smallest_sufficient_set_up_is_named(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    printed = run_plan(tmp_path, "--gb-per-day", "600", "--json", str(file))
    assert re.search(r"brokers 1, heap_mb 512", printed)
    assert re.search(r"1 +512 +9\.50 +821 +570,000 +the smallest", printed)
    assert re.search(r"1 +256 .* no\n", printed) and re.search(r"2 +512 .* yes\n", printed)
    document = json.loads(file.read_text())
    assert document["smallest"]["settings"] == {BROKERS: "1", HEAP: "512"}
    assert document["mb_per_s_wanted"] == pytest.approx(600 / 86.4)


def test_growth_and_headroom_count(tmp_path: Path) -> None:
    printed = run_plan(tmp_path, "--mb-per-s", "5", "--growth", "0.5", "--headroom", "0.25")
    assert "brokers 2, heap_mb 256" in printed


def test_a_load_above_every_set_up_has_no_conclusion(tmp_path: Path) -> None:
    with pytest.raises(NoConclusionError, match=r"the largest carries 19\.0 of 30\.0 MB/s"):
        run_plan(tmp_path, "--mb-per-s", "30")


def test_the_only_size_of_a_sweep_needs_no_option(tmp_path: Path) -> None:
    """Such as the mean size of a mix."""
    (tmp_path / "sweep.json").write_text(ANSWER.document(), encoding="utf-8")
    options = ["--sweep", str(tmp_path), "--mb-per-s", "7"]
    done = CliRunner().invoke(plan, options, standalone_mode=False, catch_exceptions=False)
    assert "smallest measured set-up that carries this load: brokers 1, heap_mb 512" in done.output
    two = replace(ANSWER, results=(*RESULTS, limit(1, 256, 5.0, message_bytes=100)))
    (tmp_path / "sweep.json").write_text(two.document(), encoding="utf-8")
    with pytest.raises(ConfigError, match="--message-bytes is missing and the limits are those of"):
        CliRunner().invoke(plan, options, standalone_mode=False, catch_exceptions=False)
    with pytest.raises(ConfigError, match="--scale is 2 and the limits are those of sweep s1"):
        CliRunner().invoke(
            plan, [*options[:2], "--scale", "2"], standalone_mode=False, catch_exceptions=False
        )


@pytest.mark.parametrize(
    ("options", "answer", "part"),
    [
        (("--mb-per-s", "1", "--offline", "0.2"), ANSWER, "--offline or --link-mbit-per-s"),
        (("--mb-per-s", "1", "--gb-per-day", "1"), ANSWER, "--mb-per-s, --gb-per-day and --scale"),
        (("--mb-per-s", "1", "--limit", "5"), ANSWER, "--run, --limit and --sweep"),
        (
            ("--mb-per-s", "1", "--message-bytes", "100"),
            ANSWER,
            "expected a measured size: 1 kB",
        ),
        (("--mb-per-s", "1"), replace(ANSWER, asks="load", kind=ACKNOWLEDGED), "asks: limit"),
    ],
)
def test_options_that_no_sweep_can_answer_are_refused(
    tmp_path: Path,
    options: tuple[str, ...],
    answer: SweepAnswer,
    part: str,
    snapshot: SnapshotAssertion,
) -> None:
    with pytest.raises(ConfigError) as error:
        run_plan(tmp_path, *options, answer=answer)
    assert part in str(error.value)
    assert str(error.value) == snapshot


def test_the_answer_of_a_sweep_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "sweep.json"
    file.write_text(ANSWER.document(), encoding="utf-8")
    assert load_answer(file) == ANSWER
    file.write_text('{"results": []}', encoding="utf-8")
    with pytest.raises(ConfigError, match="is not the answer of a sweep"):
        load_answer(file)
