"""The supported releases of Spark: whole jobs on each, and tables that all of them share.

Each release has an environment of its own, with the packages of a platform that brings this
release; the wheel is installed there, and the jobs run from there.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from jobs.setup.places import CACHE_VARIABLE, cache_dir
from jobs.testbed.spark import submit_properties
from metrics.columns import row_of
from metrics.reporting.summary import load_summary
from tests.bench.planted import NEAR, measure
from tests.support.commands import EXPERIMENT, ROOT, SHORT_LOAD, SUITE, document_in, ended, finished
from tests.support.notebook_checks import check, parameters
from tests.support.notebook_kernel import execute
from tests.support.rows import trial
from tests.support.spark_environments import ENVIRONMENTS, NotInstalledError, SparkEnvironment, made
from tests.support.table_exchange import AT_S, TRIALS

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
log = logging.getLogger(__name__)

RELEASES = ("3.5", "4.0", "4.1")
ONE_SIZE = "--set=workload.message_bytes=[1000]"
JOB_S = 300.0
"""Time for one job with short trials, on two busy cores [s]."""


@dataclass(frozen=True)
class Installed:
    """An environment with a release of Spark and the wheel.

    Attributes:
        folder: folder in which the commands of the tests run.
    """

    name: str
    environment: SparkEnvironment
    python: Path
    wheel: Path
    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of its commands: nothing leads to the checkout but the jars."""
        return {
            "PYTHONPATH": "",
            "PYSPARK_PYTHON": str(self.python),
            "SPARK_HOME": str(self.spark_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            CACHE_VARIABLE: str(cache_dir()),
        }

    @property
    def spark_home(self) -> Path:
        (found,) = self.python.parents[1].glob("lib/python*/site-packages/pyspark")
        return found

    @property
    def redline(self) -> str:
        return str(self.python.with_name("redline"))

    def run(self, *words: str, environ: Mapping[str, str] | None = None) -> str:
        """Run a command that ends well, and return its output."""
        program, *arguments = words
        variables = {**self.variables, **(environ or {})}
        place: dict[str, Any] = {"program": (program,), "environ": variables}
        return finished(*arguments, folder=self.folder, deadline_s=JOB_S, **place)

    def packages(self) -> dict[str, str]:
        listed = subprocess.run(
            [self.python, "-m", "pip", "list", "--format=json", "--disable-pip-version-check"],
            capture_output=True,
            check=True,
        )
        return {canonicalize_name(e["name"]): e["version"] for e in json.loads(listed.stdout)}


def installed(name: str, wheel: Path, folder: Path) -> Installed:
    """The environment of a release; skips the test where pip cannot make it."""
    environment = ENVIRONMENTS[name]
    try:
        return Installed(name, environment, made(environment, wheel), wheel, folder)
    except NotInstalledError as error:
        pytest.skip(f"the environment with Spark {environment.spark} cannot be made: {error}")


@pytest.fixture(scope="module", params=RELEASES)
def there(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    return installed(request.param, wheel, tmp_path_factory.mktemp("spark"))


@dataclass(frozen=True)
class Brokers:
    """A testbed that the environment's own command started, with a Spark cluster."""

    cluster: str
    master: str


@pytest.fixture(scope="module")
def brokers(there: Installed) -> Iterator[Brokers]:
    name = f"spark-{there.name}"
    up = ("testbed", "up", "--profile=calibrated", "--brokers=3", "--spark-workers=2")
    try:
        text = there.run(there.redline, *up, f"--name={name}")
        file = re.search(r"cluster file +(\S+)", text)
        master = re.search(r"Spark master +(spark://\S+)", text)
        assert file and master, text
        yield Brokers(file[1], master[1])
    finally:
        there.run(there.redline, "testbed", "down", f"--name={name}")


@pytest.mark.parametrize("name", ["3.5", "3.5 of 16.4", "4.0"])
def test_an_installation_replaces_no_package_of_the_platform(
    name: str, wheel: Path, tmp_path: Path
) -> None:
    there = installed(name, wheel, tmp_path)
    found, brought = there.packages(), there.environment.packages
    assert {each: found[each] for each in brought} == dict(brought)
    assert found["pyspark"] == there.environment.spark
    assert found["delta-spark"] == there.environment.delta
    # The one exception, which docs/deploy states.
    for package, version in there.environment.replaced.items():
        assert (package, version) == ("pydantic", "1.10.6")
        assert found[package].startswith("2.")
    there.run(str(there.python), "-m", "pip", "check")


def test_the_planted_limit_is_found_and_shown_by_a_notebook(
    there: Installed, tmp_path: Path
) -> None:
    run = {"program": (there.redline,), "environ": there.variables}
    points = measure("handlers", "60", 1, ONE_SIZE, folder=tmp_path, **run)
    for point in points:
        log.warning("Spark %s: %s: off by %+.1f %%", there.name, point, 100.0 * point.off_by)
    assert abs(points[0].off_by) <= NEAR
    (path,) = (tmp_path / "out").glob("*/summary.json")
    summary = load_summary(path)
    asked = parameters(str(tmp_path / "out" / "tables"), summary.run_id)
    shown = execute(["trial"], asked, tmp_path, str(there.python), **there.variables)
    check("trial", shown["trial"], summary)
    environment = json.loads((path.parent / "summary.json").read_text())["environment"]
    assert environment["spark.version"] == there.environment.spark


def test_a_sweep_of_two_cases(there: Installed, brokers: Brokers) -> None:
    file = there.folder / "acks.yaml"
    file.write_text(EXPERIMENT.format(cluster=brokers.cluster))
    there.run(there.redline, "sweep", str(file), *SHORT_LOAD, "--out=sweep")
    (path,) = (there.folder / "sweep").rglob("sweep.json")
    sweep = json.loads(path.read_text())
    assert [each["why"] for each in sweep["results"]] == ["", ""]


def test_two_nights_are_compared(there: Installed, brokers: Brokers) -> None:
    (there.folder / "suite.yaml").write_text(SUITE.format(cluster=brokers.cluster))
    outcomes = []
    for night in ("a", "b"):
        words = ("nightly", "--suite=suite.yaml", f"--night={night}", "--out=nights")
        place: dict[str, Any] = {"program": (there.redline,), "environ": there.variables}
        code, text = ended(*words, *SHORT_LOAD, folder=there.folder, deadline_s=JOB_S, **place)
        assert code in {0, 4}, text
        path = there.folder / "nights" / f"suite-{night}" / "nightly.json"
        (case,) = json.loads(path.read_text())["cases"]
        outcomes.append((case["outcome"], case.get("nights")))
    assert outcomes[0][0] == "no history"
    assert outcomes[1][0] != "no history"
    assert outcomes[1][1] == ["a"]


SESSION = """
import sys
from pyspark.sql import SparkSession
from jobs.cli import redline
from jobs.setup.jars import delta_jars
from jobs.spark.session import DELTA

builder = SparkSession.builder.master("local[3]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
builder = builder.config("spark.driver.host", "127.0.0.1")
if sys.argv[1] == "with":
    builder = builder.config("spark.jars", ",".join(map(str, delta_jars())))
    for key, value in DELTA.items():
        builder = builder.config(key, value)
spark = builder.getOrCreate()
sys.argv[1:2] = []
try:
    code = redline.main(standalone_mode=False)
except Exception as error:
    print(f"{type(error).__name__}: {error}")
    code = error.exit_code
print(f"code {code}, alive {spark.range(3).count()}")
"""
ONE_TRIAL = ("traffic", "--workload=1kB", "--np=4", *SHORT_LOAD)


def test_a_session_that_is_there_already_is_used(there: Installed, brokers: Brokers) -> None:
    script = there.folder / "notebook.py"
    script.write_text(SESSION)
    job = (*ONE_TRIAL, f"--cluster={brokers.cluster}", "--out=session")
    text = there.run(str(there.python), str(script), "with", *job)
    assert "code 0, alive 3" in text, text
    environment = document_in(there.folder, out="session")["environment"]
    assert environment["spark.master"] == "local[3]"
    assert environment["spark.version"] == there.environment.spark


def test_a_session_without_delta_is_refused_before_anything_else(there: Installed) -> None:
    script = there.folder / "without.py"
    script.write_text(SESSION)
    job = (*ONE_TRIAL, "--cluster=calibrated", "--out=without")
    text = there.run(str(there.python), str(script), "without", *job)
    assert "code 2, alive 3" in text, text
    assert "ConfigError: the active Spark session has no Delta tables" in text
    assert "spark.jars.packages=io.delta:delta-spark_" in text
    assert not (there.folder / "without").exists()


@pytest.mark.parametrize("kind", ["local", "standalone"])
def test_a_submitted_job_runs(there: Installed, brokers: Brokers, kind: str) -> None:
    submitted = there.folder / "traffic.py"
    submitted.write_text((ROOT / "jobs" / "traffic.py").read_text())
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    conf = [part for pair in settings.items() for part in ("--conf", "=".join(pair))]
    master, settings_file = "local[3]", ROOT / "conf" / "spark" / "submit.properties"
    if kind == "standalone":
        master, settings_file = brokers.master, submit_properties(Path(brokers.cluster).parent)
    _, *job = ONE_TRIAL
    there.run(
        str(there.python.with_name("spark-submit")),
        *("--master", master, "--py-files", str(there.wheel)),
        *("--properties-file", str(settings_file), *conf),
        str(submitted),
        *(*job, f"--cluster={brokers.cluster}", f"--out={kind}"),
    )
    (path,) = (there.folder / kind).glob("*/summary.json")
    environment = json.loads(path.read_text())["environment"]
    assert environment["spark.master"] == master
    assert environment["spark.version"] == there.environment.spark


def exchange(there: Installed, folders: list[Path]) -> dict[str, Any]:
    """What one release finds in the folders, to which it then appends."""
    words = ("-m", "tests.support.table_exchange", there.name, *map(str, folders))
    text = there.run(str(there.python), *words, environ={"PYTHONPATH": str(ROOT)})
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found


def protocols(folder: Path) -> set[tuple[int, int]]:
    """(reader, writer) versions of Delta's protocol in all logs of a folder of tables."""
    lines = [
        json.loads(line)
        for path in folder.glob("*/_delta_log/*.json")
        for line in path.read_text().splitlines()
    ]
    found = [line["protocol"] for line in lines if "protocol" in line]
    return {(each["minReaderVersion"], each["minWriterVersion"]) for each in found}


def test_each_release_reads_and_extends_the_tables_of_the_others(
    wheel: Path, tmp_path: Path
) -> None:
    places = [installed(name, wheel, tmp_path) for name in RELEASES]
    folders = {name: tmp_path / f"tables-{name}" for name in RELEASES}
    has: dict[str, set[str]] = {folder.name: set() for folder in folders.values()}
    trials: dict[str, Any] = {}
    # At first each creates its own tables, after it extended those of the releases before it.
    turns = [list(folders.values())[: number + 1] for number in range(len(places))]
    turns += [list(folders.values())] * len(places)
    for there, seen in zip([*places, *places], turns, strict=True):
        found = exchange(there, seen)
        for folder in seen:
            rows = found[folder.name]
            assert set(rows) == has[folder.name], (there.name, folder)
            has[folder.name].add(there.name)
            for run_id, row in rows.items():
                check_row(row)
                assert row["trials"] == trials.setdefault(run_id, row["trials"])
    assert set(map(frozenset, has.values())) == {frozenset(RELEASES)}
    # Features of later protocols would lock older releases out.
    assert set().union(*map(protocols, folders.values())) <= {(1, 2)}


def check_row(row: Mapping[str, Any]) -> None:
    """What a release found of the run of any release."""
    assert [each["trial"] for each in row["trials"]] == list(range(1, TRIALS + 1))
    assert row["samples"] == 2 * TRIALS
    assert row["resources"] == TRIALS * len(row_of(trial())["resources"])
    assert row["limits"] == 1
    assert row["status"] == "done"
    assert row["at"] == pytest.approx(AT_S)
