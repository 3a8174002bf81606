"""What installed packages of others add: found by name, used, and refused in a sentence."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from syrupy.assertion import SnapshotAssertion

from jobs.campaigns.campaign import measurement_named
from jobs.checks.finding import Severity
from jobs.checks.survey import Needs
from jobs.config import load
from jobs.config.loading import load_cluster
from jobs.config.metrics_registry import SourceTarget
from jobs.engine.clients.library_consumers import LibraryConsumers
from jobs.engine.clients.library_producers import LibraryProducers
from jobs.engine.clients.registry import client_named, client_of
from jobs.features.doctor.examination import extension_findings
from jobs.features.sweep.cases import case_of, load_sweep, results_of
from jobs.features.sweep.sweep_run import SweepRun
from jobs.runs.environment import packages_of_extensions
from jobs.runs.fixed_load import FixedLoadRun
from jobs.runs.measurement import Case, HeldMeasurement, HeldRun
from jobs.trials.measure import Rig
from metrics.common.errors import ConfigError
from metrics.common.extensions import (
    APIS,
    CLIENTS,
    MEASUREMENTS,
    SOURCES,
    installed_names,
    load_extension,
)
from metrics.features.nightly.judging import is_instrument
from metrics.reporting.summary import trial_document
from metrics.sources.beans import HANDLER_IDLE_NS
from metrics.sources.source import MetricsSource
from metrics.traffic.clients import ConsumerOptions
from tests.support.added_packages import add_package, add_project
from tests.support.commands import ROOT
from tests.support.patterns import plan
from tests.support.report_rows import summary_of_sizes
from tests.support.rows import trial
from tests.support.served_jolokia import served_jolokia

ACKS = "workload.producer.acks"
CODE = YAML(typ="safe").load((ROOT / "tests/data/extensions.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def no_modules_stay() -> Any:
    """Forgets modules that a test imported from its own folder."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def group_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group whose protocol has the version 1."""
    monkeypatch.setitem(APIS, "redline.tests", 1)


class Packages:
    """Packages of others that a test adds; each has its folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._monkeypatch, self._folder, self._added = monkeypatch, folder, 0

    def add(
        self, group: str, points: Mapping[str, str], modules: Mapping[str, str],
        name: str = "of-others",
    ) -> None:  # fmt: skip
        self._added += 1
        folder = self._folder / f"package-{self._added}"
        add_package(self._monkeypatch, folder, group, points, modules, name)

    def add_project(self, project: str) -> None:
        add_project(self._monkeypatch, self._folder, project)


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Packages:
    return Packages(monkeypatch, tmp_path)


pytestmark = pytest.mark.usefixtures("no_modules_stay", "group_of_tests")


def refusal(read: Callable[[], object]) -> str:
    """The message of a refusal."""
    with pytest.raises(ConfigError) as error:
        read()
    return str(error.value)


@pytest.mark.parametrize("name", CODE["of others"])
def test_a_package_that_cannot_be_used_is_refused_in_a_sentence(
    name: str, packages: Packages, snapshot: SnapshotAssertion
) -> None:
    packages.add("redline.tests", *CODE["of others"][name])
    assert refusal(lambda: load_extension("redline.tests", "it")) == snapshot


def test_a_name_that_two_packages_add_is_refused(
    packages: Packages, snapshot: SnapshotAssertion
) -> None:
    for each in ("one", "two"):
        packages.add("redline.tests", {"it": f"{each}:It"}, {each: "raise RuntimeError"}, each)
    assert installed_names("redline.tests") == ("it",), "without an import"
    assert refusal(lambda: load_extension("redline.tests", "it")) == snapshot


# --- measurements -------------------------------------------------------------

REST = f"asks: time-to-rest\nload: 400\nworkload: 1kB\naxes:\n  {ACKS}: ['1', all]\n"


def written(folder: Path, text: str) -> str:
    file = folder / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_an_experiment_asks_for_the_measurement_of_a_package(
    tmp_path: Path, packages: Packages
) -> None:
    packages.add_project("rest")
    sweep = load_sweep(written(tmp_path, REST))
    of = sweep.measurement
    assert (of.name, of.unit_on("np")) == ("time-to-rest", "s")
    body = of.body(case_of(sweep.experiment, sweep.cases[0].config))
    assert (body.measurement, body.plan(tmp_path).trials_estimated) == ("time-to-rest", 1)
    rested = trial_document(trial(recovery_s=4.5))
    summary = replace(summary_of_sizes([]), trials=(rested,))
    (found,) = results_of(of, {ACKS: "1"}, 1, summary)
    assert (found.value, found.reading("idle")) == (4.5, rested["handler_idle_min"])
    (never,) = results_of(of, {}, 1, replace(summary, trials=({**rested, "recovery_s": None},)))
    assert (never.value, never.why) == (None, "the brokers did not come to rest within a minute")
    with pytest.raises(ConfigError, match="together with asks: time-to-rest"):
        load_sweep(written(tmp_path, f"{REST}trials: 2\n"))


@pytest.mark.parametrize("kind", CODE["not measurements"])
def test_what_is_no_measurement_is_refused(
    kind: str, packages: Packages, snapshot: SnapshotAssertion
) -> None:
    module = {"of_others": CODE["not measurements"][kind]}
    packages.add(MEASUREMENTS, {"it": "of_others:it"}, module)
    assert refusal(lambda: measurement_named("it")) == snapshot


class NoRig:
    """Stands for the rig of a run, without brokers."""

    def __init__(self, failure: Exception | None) -> None:
        self._failure = failure

    @classmethod
    def open(cls, failure: Exception | None, *_: object) -> NoRig:
        return cls(failure)

    def __enter__(self) -> NoRig:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def trial(self, *_: object) -> Any:
        if self._failure is not None:
            raise self._failure
        return trial()


def test_an_error_of_a_measurement_is_told_from_one_of_its_loads(
    packages: Packages, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages.add(MEASUREMENTS, {"it": "of_others:It"}, {"of_others": CODE["failing measurement"]})
    config = load("testbed", "demo", "default", ["workload.message_bytes=[1000]"])
    run: Any = type("Run", (), {"context": None})()
    cases: list[tuple[Exception | None, str, type[Exception], str]] = [
        (None, "of-others 1.0", ConfigError, "it of of-others 1.0 failed with ZeroDivisionError: "),
        (None, "", ZeroDivisionError, "^division by zero$"),
        (OSError("of the engine"), "of-others 1.0", OSError, "^of the engine$"),
    ]
    for failure, package, kind, words in cases:
        monkeypatch.setattr(Rig, "open", partial(NoRig.open, failure))
        of = measurement_named("it")
        assert of.package == "of-others 1.0"
        of.package = package
        body = of.body(Case(config, 8))
        assert isinstance(body, HeldRun)
        with pytest.raises(kind, match=words):
            body.measure(run)
        assert len(body.trials) == (failure is None), "trials before the error are kept"


@pytest.mark.parametrize("when", CODE["broken measurements"])
def test_a_broken_measurement_ends_in_a_sentence_at_any_time(
    when: str, tmp_path: Path, packages: Packages
) -> None:
    packages.add_project("rest")
    module = {"of_others": CODE["broken measurements"][when]}
    packages.add(MEASUREMENTS, {"it": "of_others:It"}, module)
    held = replace(summary_of_sizes([]), trials=(trial_document(trial()),))

    def measured() -> None:
        sweep = load_sweep(written(tmp_path, REST.replace("time-to-rest", "it")))
        SweepRun(sweep).plan(tmp_path)
        list(results_of(sweep.measurement, {}, 1, held))

    with pytest.raises(ConfigError, match=r"measurement it of of-others 1\.0 failed with Zero"):
        measured()


# --- sources ------------------------------------------------------------------


def target() -> SourceTarget:
    """A cluster of one broker on this machine."""
    unused: Callable[..., Any] = pytest.fail
    return SourceTarget({1: "127.0.0.1"}, "4.1", unused, unused)


def section(folder: Path, keys: str) -> Any:
    """The source that a cluster's file configures."""
    file = folder / "cluster.yaml"
    file.write_text(f'bootstrap_servers: ["b:9092"]\nmetrics:\n  extension: {keys}\n')
    return load_cluster(str(file)).broker_source


def test_a_source_of_a_package_reads_brokers_over_http(
    tmp_path: Path, packages: Packages, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages.add_project("jolokia")
    monkeypatch.setenv("JOLOKIA_USER", "m")
    monkeypatch.setenv("JOLOKIA_PASSWORD", "p")
    with served_jolokia() as agent:
        agent.login = "Basic bTpw"
        own = section(
            tmp_path,
            f"{{source: jolokia, options: {{port: {agent.port}, username_from: env:JOLOKIA_USER, "
            "password_from: env:JOLOKIA_PASSWORD}}",
        )
        own.require_usable({1: "127.0.0.1"})
        with closing(own.open(target())) as source:
            node = source.nodes[1]
            (sample,) = source.sample_all()
            requests = agent.asked
            agent.login = "another"
            (refused,) = source.sample_all()
    assert (source.name, node.version) == ("jolokia", "4.1.2")
    assert node.facts["jvm.arguments"] == "-Xmx512m"
    assert sample.error is None and sample.values["heap_used_bytes"] == 7
    assert HANDLER_IDLE_NS in sample.values
    assert requests == 3, "one request for each poll of a broker"
    assert refused.error is not None and "Unauthorized" in refused.error


def test_wrong_keys_of_a_source_are_refused(
    tmp_path: Path, packages: Packages, snapshot: SnapshotAssertion
) -> None:
    packages.add_project("jolokia")
    for keys, words in (
        ("{port: 1}", r"does not answer at 127\.0\.0\.1:1: .*refused"),
        ("{prt: 1}", "options has prt; expected some of"),
    ):
        with pytest.raises(ConfigError, match=words):
            section(tmp_path, f"{{source: jolokia, options: {keys}}}").open(target())
    messages = {}
    for keys in (
        "{source: jolokai}",
        "{options: {port: 1}}",
        "{source: jolokia, options: [1]}",
        "{source: jolokia, options: {password: hunter2}}",
    ):
        messages[keys] = refusal(lambda keys=keys: section(tmp_path, keys))  # type: ignore[misc]
        messages[keys] = messages[keys].replace(str(tmp_path), "FOLDER")
        assert "hunter2" not in messages[keys]
    assert messages == snapshot


def source_of(packages: Packages, folder: Path, own: str) -> MetricsSource:
    packages.add(SOURCES, {"it": "of_others:It"}, {"of_others": CODE["source"].format(own=own)})
    found: MetricsSource = section(folder, "{source: it}").open(target())
    return found


@pytest.mark.parametrize("kind", CODE["broken sources"])
def test_a_broken_source_ends_the_start_in_a_sentence(
    kind: str, packages: Packages, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    message = refusal(lambda: source_of(packages, tmp_path, CODE["broken sources"][kind]))
    assert message == snapshot
    assert "of-others 1.0" in message


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ("pass", "TypeError: a sample is 1; expected a BrokerSample"),
        ("def sample_all(self): raise OSError('gone')", "OSError: gone"),
    ],
)
def test_a_poll_that_fails_is_a_missed_sample_of_each_node(
    own: str, words: str, tmp_path: Path, packages: Packages
) -> None:
    with closing(source_of(packages, tmp_path, own)) as source:
        (sample,) = source.sample_all()
    assert (sample.broker_id, sample.values) == (1, {})
    assert sample.error is not None and sample.error.endswith(words)


# --- clients ------------------------------------------------------------------

BOTH_ROLES = ("workload.producer.client=mine", "workload.consumers.client=mine")


def test_a_client_of_a_package_has_both_roles_and_executors_need_its_package(
    packages: Packages,
) -> None:
    with pytest.raises(ConfigError, match=r"client is \"mine\".* adds to redline\.clients"):
        load("testbed", "demo", "default", BOTH_ROLES)
    packages.add(
        CLIENTS,
        {"mine": "my_client:Mine", "half": "half_client:Half"},
        {"my_client": CODE["client"], "half_client": CODE["half a client"]},
    )
    with pytest.raises(ConfigError, match=r"client half of of-others 1\.0 has no consumer; "):
        client_named("half")
    config = load("testbed", "demo", "default", BOTH_ROLES)
    assert Needs.of(config.workload, config.cluster).packages["of-others"] == "my_client"
    reading = ConsumerOptions(groups=1, members=2, client="mine")
    trial = plan(client="mine", consumers=reading, tasks=1, consumer_tasks=1)
    producers, consumers = (client_of(trial, task) for task in (0, 1))
    assert isinstance(producers, LibraryProducers)
    assert producers._make(trial, 3) == ("producer", 3)  # type: ignore[comparison-overlap]
    assert isinstance(consumers, LibraryConsumers)


def test_runs_record_the_packages_of_others_that_they_use(
    tmp_path: Path, packages: Packages
) -> None:
    packages.add_project("jolokia")
    packages.add(CLIENTS, {"mine": "my_client:Mine"}, {"my_client": CODE["client"]})
    file = tmp_path / "cluster.yaml"
    file.write_text('bootstrap_servers: ["b:9092"]\nmetrics: {extension: {source: jolokia}}\n')
    used = packages_of_extensions(load(str(file), "demo", "default", BOTH_ROLES))
    assert used == {"package.of-others": "1.0", "package.redline-jolokia": "1.0"}
    assert all(map(is_instrument, used)), "nights with another version are not compared"
    assert packages_of_extensions(load("testbed", "demo", "default")) == {}


# --- doctor -------------------------------------------------------------------


def test_doctor_names_each_package_and_warns_of_a_broken_one(packages: Packages) -> None:
    assert extension_findings() == []
    packages.add_project("rest")
    (fine,) = extension_findings()
    assert (fine.severity, fine.found) == (
        Severity.OK, "time-to-rest of redline-time-to-rest 1.0 (redline.measurements)",
    )  # fmt: skip
    packages.add(CLIENTS, {"mine": "broken:It"}, {"broken": "1 / 0"})
    found = {each.severity: each for each in extension_findings()}
    assert "of-others 1.0" in found[Severity.WARNING].found
    assert "ZeroDivisionError" in found[Severity.WARNING].found


# --- the page -----------------------------------------------------------------


def test_the_page_names_what_exists() -> None:
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:jobs|metrics)[.\w]+\.[A-Z]\w+)`", text))
    assert len(named) >= 8
    for each in named:
        module, _, name = each.rpartition(".")
        assert hasattr(importlib.import_module(module), name), each
    for method in re.findall(r"`(\w+)\((?:case|loads|trials)\)`", text):
        assert callable(getattr(HeldMeasurement, method)), method


def test_the_example_of_the_page_is_a_measurement(
    tmp_path: Path, packages: Packages, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    points = {"slowest-record": "of_the_page:SlowestRecord"}
    packages.add(MEASUREMENTS, points, {"of_the_page": code})
    monkeypatch.setattr(Rig, "open", partial(NoRig.open, None))
    of = measurement_named("slowest-record")
    config = load("testbed", "demo", "default", ["workload.message_bytes=[1000]"])
    body = of.body(Case(config, 8))
    assert isinstance(body, HeldRun)
    once, thrice = (each.plan(tmp_path) for each in (FixedLoadRun(config, body.load), body))
    assert (thrice.trials_estimated, thrice.duration_s) == (3, 3 * once.duration_s)
    assert thrice.write_bytes_max == 3 * (once.write_bytes_max or 0.0) > 0
    run: Any = type("Run", (), {"context": None})()
    body.measure(run)
    held = replace(summary_of_sizes([]), trials=tuple(map(trial_document, body.trials)))
    (found,) = results_of(of, {}, 1, held)
    assert found.value == held.trials[0]["latency_p999_ms"]
    assert found.reading("trials") == 3
