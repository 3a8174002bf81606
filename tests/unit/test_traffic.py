"""`redline traffic`: its plan, its refusals, and the trials in its summary."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from jobs.config import describe, load
from jobs.console.events import Level, Notice, PlanShown, RecordingReporter
from jobs.console.printing import make_reporter
from jobs.runs.fixed_load import FixedLoad, FixedLoadRun, at_rate, trials_table
from jobs.runs.launch import require_consent
from jobs.traffic import traffic
from metrics.common.bounds import offered_rate
from metrics.common.errors import ConfigError, RegressionError
from metrics.reporting.limit_answer import answer_of_load
from metrics.reporting.report_page import ceilings_of
from metrics.reporting.summary import RunSummary, load_summary, trial_document, write_summary
from metrics.traffic.profile import RateProfile
from metrics.trial.client import ClientWindow
from metrics.trial.evidence import Judgement, Reason
from metrics.trial.trial import Trial
from search.model import Verdict
from tests.support.evidence import START_S, broker, client, evidence
from tests.support.report_rows import overloaded, sustained, trial_at
from tests.support.rows import trial

MIX = Path(__file__).parents[1] / "data" / "mixes" / "three-parts.yaml"
CONFIG = load("testbed", "demo", "default", ["workload.message_bytes=[1000]"]).in_full


def test_a_plan_has_trials_or_one_load_of_whole_windows() -> None:
    trial = CONFIG.workload.trial
    assert trial.stop_rule is None, "a fixed load is never ended early"
    plan = FixedLoadRun(CONFIG, FixedLoad(1_000, 40, trials=3)).plan(Path("out"))
    assert (plan.trials_estimated, plan.message_bytes, plan.resolution) == (3, (1_000,), None)
    assert plan.duration_s == 3 * plan.trial_s
    # 40 producers of 125 kB/s for 10 s, two replicas, three times.
    assert plan.write_bytes_max == pytest.approx(40 * 125_000 * 10 * 2 * 3)
    plan = FixedLoadRun(CONFIG, FixedLoad(1_000, 40, duration_s=40.0)).plan(Path("out"))
    assert plan.trials_estimated == math.ceil(40.0 / trial.measure_s)
    length_s = plan.trials_estimated * trial.measure_s
    assert length_s <= plan.duration_s < length_s + 10.0, "and no gap between two of them"
    written = 40 * 125_000 * (trial.warmup_s + length_s) * 2
    assert plan.write_bytes_max == pytest.approx(written)
    half = RateProfile("half", ((0.0, 0.5), (40.0, 0.5)))
    of_half = FixedLoad(1_000, 40, duration_s=40.0, profile=half)
    halved = FixedLoadRun(CONFIG, of_half).plan(Path("out"))
    assert halved.write_bytes_max == pytest.approx(written / 2)
    assert FixedLoad(1_000, 40, duration_s=1.0).trials_expected(15.0) == 1
    assert FixedLoad(1_000, 40, duration_s=0.3).trials_expected(0.1) == 3, "rounding adds no window"


def test_options_that_contradict_windows_without_a_gap_are_refused() -> None:
    flat = RateProfile("flat", ((0.0, 1.0), (60.0, 1.0)))
    for change, message in (
        ("producer.client=kafka-python", "with the client kafka-python; expected the client wire"),
        ("trial.volume_bytes=1000000", "has trial.volume_bytes 1000000; expected none"),
        ("producer.arrivals=bursts", "expected arrivals fixed or poisson"),
        ("trial.ramp_up_s=1", r"trial\.ramp_up_s 1; expected arrivals"),
    ):
        options = ("trial.early_end_error_rate=0", "trial.measure_s=6", change)
        config = load("testbed", "1kB", "default", [f"workload.{each}" for each in options])
        with pytest.raises(ConfigError, match=message):
            FixedLoadRun(config, FixedLoad(1_000, 4, duration_s=60.0, profile=flat))


AXIS = (
    "goal.search.axis=partitions", "workload.np=3", "goal.search.load_cap=100",
    "goal.search.load_start_max=10",
)  # fmt: skip
UNLIMITED = ("workload.producer.rate=unlimited", "workload.producer.rate_bytes_per_s=null")
REFUSED: list[tuple[str, tuple[str, ...], str]] = [
    ("--np 4 --trials 2 --duration 9", (), "both given"),
    ("--np 4 --trials 2 --profile day", (), "both given"),
    ("--np 4 --profile dya", (), "day"),
    ("--np 4", ("workload.np=3",), "has np 3"),
    ("--np 4 --message-bytes 9000000", (), "raise producer.buffer_memory|pool_bytes"),
    ("--np 4 --cluster example --workload 1kB", (), "load it with 4 producers"),
    ("--np 4 --cluster example", (), "--workload is missing; expected one of"),
    ("--np 4 --cluster exampel", (), "the nearest is example"),
    ("", (), "0 of --rate and --np are given"),
    ("--rate 5MB/s --np 4", (), "2 of --rate and --np are given"),
    (f"--rate 5MB/s --workload {MIX}", (), "counts % of the mix"),
    ("--rate 5MB/s --goal default", AXIS, "counts partitions per broker"),
    ("--rate 5MB/s", UNLIMITED, "expected producers with a fixed rate"),
]
"""Options, those with --set, and a part of their refusal."""


@pytest.mark.parametrize(("options", "changes", "message"), REFUSED)
def test_wrong_options_are_refused_before_any_load(
    options: str, changes: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    given = [*options.split(), *(f"--set={each}" for each in changes), f"--out={out}"]
    done = CliRunner().invoke(traffic, given)
    assert isinstance(done.exception, ConfigError), done.output
    with pytest.raises(ConfigError, match=message):
        raise done.exception
    assert not out.exists()


def test_an_overload_fails_the_run_where_the_load_must_be_sustained() -> None:
    over = trial_at(2, 1000, 40, {"default": overloaded()})
    for must_be_sustained, code in ((True, 4), (False, 0)):
        body = FixedLoadRun(CONFIG, FixedLoad(1_000, 40, must_be_sustained=must_be_sustained))
        body.trials.append(trial_at(1, 1000, 40, {"default": sustained()}))
        assert body.outcome(None).exit_code == 0
        body.trials.append(over)
        outcome = body.outcome(None)
        assert outcome.exit_code == code
        assert body.outcome(KeyboardInterrupt()).exit_code == 130
    strict = FixedLoadRun(CONFIG, FixedLoad(1_000, 40, must_be_sustained=True))
    strict.trials.append(over)
    with pytest.raises(RegressionError, match="1 of 1 trials were OVERLOADED"):
        strict.outcome(None).checked_exit_code()


def test_a_dry_run_starts_no_load(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        traffic, ["--np", "40", "--duration", "40", "--dry-run", "--out", str(tmp_path / "out")]
    )
    assert (done.exit_code, done.exception) == (0, None)
    assert "about 5 trials of 8 s" in done.output
    assert not (tmp_path / "out").exists()


def test_the_refusal_without_consent_names_the_action() -> None:
    config = load("example", "demo", "default")
    with pytest.raises(ConfigError, match="would do this"), make_reporter() as reporter:
        require_consent([config], reporter, False, "do this")
    with make_reporter() as reporter:
        require_consent([config], reporter, True)


def test_the_question_for_consent_shows_the_plan_first(monkeypatch: pytest.MonkeyPatch) -> None:
    class Answering(RecordingReporter):
        def confirm(self, question: str) -> bool:
            self.events.append(Notice(Level.NOTE, question))
            return True

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    config = load("example", "demo", "default", ["workload.message_bytes=[1000]"])
    other = load("example", "demo", "default", ["cluster.bootstrap_servers=[elsewhere:9092]"])
    plan = FixedLoadRun(config, FixedLoad(1_000, 40)).plan(Path("out"))
    reporter = Answering()
    require_consent([config, other], reporter, False, "do this", lambda: PlanShown(plan))
    assert [type(each) for each in reporter.events] == [PlanShown, Notice, Notice]
    require_consent([config, other], reporter, True, "do this", lambda: PlanShown(plan))
    assert len(reporter.events) == 3, "no question after --yes"


def test_trials_are_read_back_from_the_summary(tmp_path: Path) -> None:
    made = trial(client=client(latency_p999_ms=math.nan), recovery_s=2.0)
    held = trial_document(made)
    words = ("OVERLOADED", "disk", "disk: …")
    assert (held["verdict"], held["limited_by"], held["evidence"]) == words
    assert held["reasons"] == ["request_handler_idle: idle 0.1"]
    assert (held["trial"], held["started_at"]) == (1, "1970-01-12T13:46:37Z")
    assert (held["bpm"], held["np"], held["axis"], held["load"]) == (100, 4, "np", 4)
    assert (held["duration_s"], held["handler_idle_min"]) == (10.0, 0.1)
    assert (held["offered_mb_per_s"], held["achieved_mb_per_s"]) == (0.1, 0.1)
    assert held["handler_s_per_mb"] == pytest.approx(0.55 / 0.05)
    latencies = ("latency_p50_ms", "latency_p99_ms", "latency_p999_ms", "latency_max_ms")
    assert [held[name] for name in latencies] == [2.0, 8.0, None, 20.0]
    nothing = trial_document(trial(client=client(offered_records=0, sent_records=0)))
    assert (nothing["offered_mb_per_s"], nothing["achieved_mb_per_s"]) == (None, None)
    unknown = trial(client=ClientWindow(START_S, START_S), brokers=())
    not_made = trial_document(unknown)
    silent = trial_document(trial(brokers=(broker(1), broker(2, handler_idle=None))))
    assert silent["handler_s_per_mb"] is not_made["handler_s_per_mb"] is None
    pair = (broker(1, handler_idle=0.8), broker(2, handler_idle=0.1))
    whole, half = client(acked_bytes=400_000_000), client(acked_bytes=200_000_000)
    # Busy for 0.2 and 0.9 of the time with 20 MB/s each, and the second one alone.
    assert evidence(whole, pair).handler_s_per_mb == pytest.approx(0.55 / 20)
    assert evidence(half, pair[1:]).handler_s_per_mb == pytest.approx(0.9 / 20)
    known, lacking = trials_table("t", [trial(), unknown]).rows
    assert known == ("1", "100 B", "4", "0.100", "0.100", "0.10", "2.0", "8.0", "OVERLOADED")
    assert lacking == ("1", "100 B", "4", "?", "?", "?", "?", "?", "OVERLOADED")
    summary = RunSummary("r", "a", "b", "c", "w", "g", (), trials=(held, nothing, not_made))
    write_summary(summary, tmp_path / "summary.json")
    assert load_summary(tmp_path / "summary.json") == summary


@pytest.mark.parametrize("key", ["rate_bytes_per_s=125000", "rate_records_per_s=125"])
def test_a_rate_is_offered_exactly(key: str) -> None:
    rates = ("workload.producer.rate_bytes_per_s=null", f"workload.producer.{key}")
    given = load("testbed", "demo", "default", rates)
    for text, message_bytes, producers, mb_per_s in (
        ("200MB/s", 1_000, 1600, 200.0),
        ("0.2 GB/s", 1_000, 1600, 200.0),
        ("50000/s", 1_000, 400, 50.0),
        ("50k msg/s", 100, 40, 5.0),
        ("300 kB/s", 1_000, 2, 0.3),
        ("1 B/s", 1_000, 1, 1e-6),
        ("190kB/s", 1_000, 2, 0.19),
    ):
        rate = offered_rate(text)
        assert rate is not None
        config, load_, words = at_rate(given, message_bytes, rate)
        assert config.pattern(message_bytes, load_).mb_per_s == pytest.approx(mb_per_s)
        if key == "rate_bytes_per_s=125000":
            assert load_ == producers
        assert words.startswith(f"{rate} is offered by {load_:,} producer")


NO_RATE = Reason("generator_limited", "the generator offered 80 % of the rate", 0.8, 0.99)
INVALID = Judgement(Verdict.INVALID, (NO_RATE,))
WINDOWS = {"y": sustained(), "n": overloaded(), "?": INVALID}
ANSWERS = [
    ("y", True, "", True),
    ("yyy", True, "", True),
    ("yyyy", False, "", True),
    ("yyny", True, "", False),
    ("nn", False, "", False),
    ("y?yy", True, "", True),
    ("???y", True, "", None),
    ("?", False, "", None),
    ("yy", True, "interrupted", None),
    ("yn", True, "interrupted", False),
    ("", True, "interrupted", None),
]


def trials_of(verdicts: str) -> list[Trial]:
    return [trial_at(n, 1000, 40, {"default": WINDOWS[each]}) for n, each in enumerate(verdicts, 1)]


def test_the_answer_to_a_load(snapshot: SnapshotAssertion) -> None:
    ceilings = ceilings_of(describe(CONFIG.goal))
    lines = []
    for verdicts, is_continuous, ended, carries in ANSWERS:
        answer = answer_of_load(trials_of(verdicts), ceilings, is_continuous, ended)
        assert answer.carries is carries, verdicts
        lines.append(f"{verdicts or '-'}: {answer.text}")
    assert "\n".join(lines) == snapshot


def test_a_load_that_ends_before_its_time_is_no_yes() -> None:
    rest = "of the rate; 200.0 MB/s (200,000 messages/s) was"
    for verdicts, carries, words in (("yyyy", True, "yes: "), ("yy?", None, rest)):
        duration_s = 4 * CONFIG.workload.trial.measure_s
        body = FixedLoadRun(CONFIG, FixedLoad(1_000, 40, duration_s=duration_s))
        body.trials = trials_of(verdicts)
        answer = body._answer()
        assert answer.carries is carries and words in answer.text


def test_what_is_no_rate_is_refused_with_an_example() -> None:
    for text in ("200", "0/s", "5 Mbit/s", "MB/s", "-1/s", "1MB", "1e3/s"):
        done = CliRunner().invoke(traffic, [f"--rate={text}", "--dry-run"])
        assert done.exit_code == 2
        assert "is not a rate; expected a payload such as 200MB/s" in done.output
