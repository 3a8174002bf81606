"""The command `redline`: its jobs, its completions, and what is imported for them.

`redline init`: a few questions, and a file that a run takes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result
from syrupy.assertion import SnapshotAssertion

from jobs.cli import ELSEWHERE, JOBS, redline
from jobs.config.loading import load_cluster
from jobs.config.metrics_registry import Prometheus
from jobs.init import init
from metrics.common.errors import ConfigError
from tests.support.commands import ROOT, job


def test_the_list_has_each_job_with_the_sentence_that_begins_its_help() -> None:
    shown = " ".join(CliRunner().invoke(redline, ["--help"]).output.split())
    for name, sentence in JOBS.items():
        assert f"{name} {sentence}" in shown
        assert " ".join((job(name).help or "").split("\n\n")[0].split()) == sentence


def test_every_module_of_a_job_is_on_the_list() -> None:
    files = {path.stem.replace("_", "-") for path in (ROOT / "jobs").glob("*.py")}
    helpers = {"--init--", "cli", "entry", "notebook", "options"}
    named = {ELSEWHERE.get(job, f"jobs.{job}").removeprefix("jobs.") for job in JOBS}
    assert files - helpers == {each.replace("_", "-") for each in named} - {"testbed.commands"}


def completed(*words: str) -> list[str]:
    """The completions that a shell gets for the last of some words."""
    *before, incomplete = words
    shell = ShellComplete(redline, {}, "redline", "_REDLINE_COMPLETE")
    return [item.value for item in shell.get_completions(before, incomplete)]


def test_names_are_completed() -> None:
    for words, offered in (
        (("find",), ["find-limit"]),
        (("find-limit", "--off"), ["--offline"]),
        (("find-limit", "--cluster", "cal"), ["calibrated", "cal"]),
        (("traffic", "--workload", "qui"), ["quick", "qui"]),
        (("find-limit", "--goal", "within-1"), ["within-100ms", "within-10ms", "within-1"]),
        (("nightly", "--suite", "te"), ["testbed", "te"]),
        (("sweep", "io"), ["io-threads", "io"]),
    ):
        assert completed(*words) == offered


def test_ids_of_runs_are_completed_from_their_folders_the_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("20261122-210000-ab12", "20261123-070000-cd34", "tables"):
        (tmp_path / "out" / name).mkdir(parents=True)
    newest_first = ["20261123-070000-cd34", "20261122-210000-ab12"]
    assert completed("report", "") == newest_first
    assert completed("find-limit", "--resume", "20261122") == newest_first[1:]
    assert completed("report", "--out", "nowhere", "") == []


def test_the_page_has_the_command_for_each_shell() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    for shell in ("bash", "zsh", "fish"):
        assert f"_REDLINE_COMPLETE={shell}_source redline" in page


HEAVY = ("altair", "kafka", "numpy", "pandas", "pyarrow", "pydantic", "pyspark")
ALLOWED = {"runs": ["pydantic"], "testbed": ["kafka", "pydantic"]}
"""The libraries that jobs may import because their answers take no longer than their options."""
ORDER = sorted(JOBS, key=lambda job: (job in ALLOWED, job))
LOADED = f"""
import json, sys
import click
from jobs.cli import redline
found = {{"redline": sorted(set(sys.modules) & set({(*HEAVY, "rich")!r}))}}
for job in {ORDER!r}:
    before = set(sys.modules)
    redline.get_command(click.Context(redline), job)
    found[job] = sorted(set(sys.modules) - before & set({HEAVY!r}))
print(json.dumps(found))
"""


def test_the_options_of_a_job_are_there_without_any_large_library() -> None:
    """Each takes tenths of a second, and each press of Tab waits for all of them."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True,
                          cwd=ROOT, check=True)  # fmt: skip
    loaded = json.loads(done.stdout)
    unexpected = {job: set(names) - set(ALLOWED.get(job, ())) for job, names in loaded.items()}
    assert {job: names for job, names in unexpected.items() if names} == {}


def run_init(file: Path, *options: str, answers: str = "") -> Result:
    return CliRunner().invoke(init, [str(file), *options], input=answers, standalone_mode=False)


PLAIN = ("--servers=b:9092", "--protocol=PLAINTEXT", "--metrics=jmx")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.yaml"


def test_answers_make_a_file_that_loads(file: Path) -> None:
    answers = "broker-1:9092, broker-2:9092\nSASL_SSL\nSCRAM-SHA-256\n\nprometheus\n9505\n"
    done = run_init(file, answers=answers)
    assert done.exception is None, done.output
    cluster = load_cluster(str(file))
    assert cluster.bootstrap_servers == ("broker-1:9092", "broker-2:9092")
    security = cluster.security
    assert (security.protocol, security.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-256")
    assert (security.username_from, security.cafile) == ("env:KAFKA_USERNAME", None)
    assert "9505" in file.read_text()
    assert "set KAFKA_PASSWORD " in done.output
    assert f"redline doctor --cluster {file}" in done.output


def test_options_replace_questions(file: Path) -> None:
    for metrics in ("jmx", "none"):
        options = ("--servers=b:9092", "--protocol=SSL", "--cafile=/ca.pem", f"--metrics={metrics}")
        done = run_init(file, *options, "--force")
        assert done.exception is None, done.output
        security = load_cluster(str(file)).security
        assert (security.protocol, security.cafile) == ("SSL", "/ca.pem")
        assert ("9999" in file.read_text()) == (metrics == "jmx")
    assert run_init(file, *PLAIN, "--force").exception is None
    assert "security" not in file.read_text().split("the values of secrets.")[1]


def test_a_prometheus_server_is_asked_for_its_url_selector_and_label(file: Path) -> None:
    def found(*options: str, answers: str = "") -> tuple[object, ...]:
        done = run_init(file, *options, answers=answers)
        assert done.exception is None, done.output
        source = load_cluster(str(file)).broker_source
        assert isinstance(source, Prometheus)
        return source.server, source.selector, source.broker_label, source.tls

    answers = "b:9092\nPLAINTEXT\nprometheus-server\nhttps://p.example.com\n\npod\n"
    assert found(answers=answers) == ("https://p.example.com", 'job="kafka"', "pod", True)
    options = (*PLAIN[:2], "--metrics=prometheus-server", "--force", "--metrics-server=http://p")
    labels = ('--metrics-selector=job="k"', "--broker-label=host")
    assert found(*options, *labels)[:3] == ("http://p", 'job="k"', "host")
    done = run_init(file, *options, "--metrics-selector=kafka")
    assert isinstance(done.exception, ConfigError)


def test_an_existing_file_stays(file: Path, snapshot: SnapshotAssertion) -> None:
    file.write_text("mine")
    done = run_init(file, *PLAIN)
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception).replace(str(file), "FILE") == snapshot
    assert file.read_text() == "mine"
    assert run_init(file, *PLAIN, "--force").exception is None


def test_a_file_that_a_run_would_refuse_is_not_kept(file: Path) -> None:
    for servers in ("", " , ", "no port", "b:99999999"):
        options = (f"--servers={servers}", *PLAIN[1:])
        assert isinstance(run_init(file, *options).exception, ConfigError)
        assert not file.exists()
        file.write_text("before")
        assert isinstance(run_init(file, *options, "--force").exception, ConfigError)
        assert file.read_text() == "before"
        file.unlink()
