"""`redline learn`: the files that it writes, and what it says."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML
from syrupy.assertion import SnapshotAssertion

from jobs.cluster.opening import OpenCluster
from jobs.config.files import load_rate_profile
from jobs.config.loading import load, load_workload
from jobs.config.workload import Workload
from jobs.console.events import Notice, RecordingReporter, Table
from jobs.features.learn.learning import LearnOrder, learn
from jobs.features.learn.survey import Bounds, Surveyor
from jobs.learn import learn as command
from metrics.common.errors import ConfigError, NoConclusionError
from metrics.features.learn.parts import MEAN, NOW, PEAK
from tests.support.frozen import frozen, keys_of, lost_keys
from tests.support.scripted_admin import FakeTime
from tests.support.simulated_traffic import (
    END_S,
    Kind,
    PartitionOfLog,
    ServedCluster,
    refuses,
    written,
)

SECRET = b"Mustermann-4711"
CLUSTER = "bootstrap_servers: [localhost:9]\nmetrics: {client_only: true}\n"

Served = Callable[[ServedCluster], ServedCluster]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """Makes `redline learn` read a cluster in memory, at the time at which its logs end."""

    def serve(admin: ServedCluster) -> ServedCluster:
        time = FakeTime()
        opened = OpenCluster(admin, admin.describe_cluster())
        monkeypatch.setattr("jobs.features.learn.learning.open_cluster", lambda *_: opened)
        monkeypatch.setattr("jobs.features.learn.learning.time.time", lambda: END_S)
        real = Surveyor

        def made(own: Any, topics: Any, bounds: Bounds, progress: Any) -> Surveyor:
            return real(
                own, topics, bounds, progress, clock=time, now=lambda: END_S, pause=time.pause
            )

        monkeypatch.setattr("jobs.features.learn.learning.Surveyor", made)
        return admin

    return serve


def order_in(folder: Path, **changes: Any) -> LearnOrder:
    cluster = folder / "prod.yaml"
    cluster.write_text(CLUSTER, encoding="utf-8")
    given: dict[str, Any] = {
        "cluster": str(cluster),
        "topics": (".*",),
        "out": folder / "mine.yaml",
        "bounds": Bounds(),
        "moment": "mean",
        "parts_max": 6,
        **changes,
    }
    return LearnOrder(**given)


def learned(folder: Path, **changes: Any) -> tuple[LearnOrder, RecordingReporter]:
    """The order of a call of `redline learn` that succeeded, and what it reported."""
    order, reporter = order_in(folder, **changes), RecordingReporter()
    assert learn(order, reporter) == 0
    return order, reporter


def evidence_in(folder: Path) -> Any:
    return json.loads((folder / "mine.learned.json").read_text(encoding="utf-8"))


def line_of(order: LearnOrder, key: str) -> str:
    """The line of a key in the file that was written."""
    lines = order.out.read_text(encoding="utf-8").splitlines()
    (line,) = [each for each in lines if each.strip().startswith(key)]
    return line


def texts(reporter: RecordingReporter) -> list[str]:
    return [each.text for each in reporter.events if isinstance(each, Notice)]


def parts_in(file: Path) -> dict[str, Workload]:
    """The parts of a mix, each loaded as a workload of its own, with its producers as np."""
    data = YAML(typ="safe").load(file.read_text(encoding="utf-8"))
    found = {}
    for name, part in data["mix"].items():
        alone = {**part, "np": part["producers"], "message_bytes": [part["message_bytes"]]}
        del alone["producers"]
        own = file.with_name(f"{name}.yaml")
        own.write_text(json.dumps({**alone, "trial": data["trial"]}), encoding="utf-8")
        found[name] = load_workload(str(own))
    return found


def two_kinds() -> dict[str, dict[int, PartitionOfLog]]:
    orders = Kind(3, 40, 0.1, 500, has_ids=True)
    clicks = Kind(2, 25, 0.2, 4_000, codec="lz4")
    return {
        "orders-de": written(orders, 6, 20.0, seed=1),
        "orders-fr": written(orders, 6, 20.0, seed=2),
        "clicks": written(clicks, 3, 20.0),
    }


def test_a_single_kind_is_a_workload_that_a_search_takes(tmp_path: Path, served: Served) -> None:
    served(ServedCluster({"orders": two_kinds()["orders-de"]}))
    order, reporter = learned(tmp_path)
    workload = load_workload(str(order.out))
    assert workload.message_bytes == (500,)
    assert (workload.np, workload.producer.acks) == (None, "all")
    assert workload.producer.enable_idempotence
    assert workload.topic.replication_factor == 2
    assert workload.trial.measure_s == 45
    text = order.out.read_text(encoding="utf-8")
    assert "Production has 3 such producers (seen: 3 producer ids" in text
    assert "mine.learned.json has the evidence" in text
    (table,) = [each for each in reporter.events if isinstance(each, Table)]
    assert table.rows[0][:3] == ("orders", "1", "3")


def test_a_codec_that_brokers_apply_is_assumed_of_producers(tmp_path: Path, served: Served) -> None:
    cluster = served(ServedCluster({"clicks": two_kinds()["clicks"]}))
    by_brokers = "the topic has compression.type lz4, and producers may use another codec"
    for codec, source in (("producer", "seen"), ("lz4", "assumed")):
        cluster.configs["clicks"] = {"compression.type": codec}
        order, _ = learned(tmp_path, out=tmp_path / f"{codec}.yaml")
        line = line_of(order, "compression: lz4 ")
        assert line.partition("# ")[2].startswith(f"{source}: 200 of 200 batches")
        assert line.endswith(by_brokers) == (codec == "lz4")


def test_topics_that_look_alike_are_one_part_of_a_mix(tmp_path: Path, served: Served) -> None:
    served(ServedCluster(two_kinds()))
    order, reporter = learned(tmp_path, json_file=tmp_path / "answer.json")
    data = YAML(typ="safe").load(order.out.read_text(encoding="utf-8"))
    ((name, orders),) = [each for each in data["mix"].items() if each[0] != "clicks"]
    assert name in ("orders-de", "orders-fr") and len(data["mix"]) == 2
    assert (orders["producers"], orders["topic"]["count"]) == (6, 2)
    assert orders["producer"]["rate_records_per_s"] == pytest.approx(40, rel=0.01)
    evidence = evidence_in(tmp_path)
    assert json.loads((tmp_path / "answer.json").read_text(encoding="utf-8")) == evidence
    assert evidence["messages_per_s"] == pytest.approx(2 * 120 + 50, rel=0.01)
    (merged,) = [text for text in texts(reporter) if "2 similar topics" in text]
    assert merged in evidence["notes"]
    assert sorted(part.np or 0 for part in parts_in(order.out).values()) == [2, 6]
    config = load("calibrated", str(order.out), "default")
    assert config.axis.name == "scale", "a search takes it as it is"
    pattern = config.pattern(config.workload.message_bytes[0], 100)
    assert pattern.records_per_s == pytest.approx(evidence["messages_per_s"], rel=0.001)
    order, _ = learned(tmp_path, parts_max=1, out=tmp_path / "one.yaml")
    assert load_workload(str(order.out)).topic.count == 3


def test_a_copy_has_as_many_messages_and_batches_a_second(tmp_path: Path, served: Served) -> None:
    kinds = {
        "hot": Kind(4, 100, 0.05, 200),
        "full": Kind(3, 60, 5.0, 1_000, batch_records=15),
        "packed": Kind(2, 100, 5.0, 1_000, batch_records=30, codec="lz4"),
        "keyed": Kind(3, 40, 0.1, 500, is_keyed=True, has_ids=True, keys=50),
    }
    served(ServedCluster({name: written(kind, 6, 20.0) for name, kind in kinds.items()}))
    order = order_in(tmp_path, moment="now", bounds=Bounds(decodes=True))
    assert learn(order, RecordingReporter()) == 0
    evidence = json.loads((tmp_path / "mine.learned.json").read_text(encoding="utf-8"))
    seen = {part["name"]: part for part in evidence["parts"]}
    assert {part.name for part in load_workload(str(order.out)).parts} == set(kinds)
    for name, workload in parts_in(order.out).items():
        pattern = workload.pattern(workload.message_bytes[0])
        assert pattern.records_per_s == pytest.approx(seen[name]["messages_per_s"], rel=0.01), name
        own = pattern.producer
        records = min(
            own.records_per_full_batch, 1 + own.rate_records_per_s * own.options.linger_ms / 1e3
        )
        if own.options.arrivals == "fixed":
            records = own.records_per_batch
        if name != "packed":  # batch.size bounds it after compression, and the pattern before
            requests_per_s = pattern.records_per_s / records
            assert requests_per_s == pytest.approx(seen[name]["requests_per_s"], rel=0.03), name
        assert (own.options.sticky_partition == "keys") == (name == "keyed")
        assert own.options.batch_size > seen[name]["records_per_batch"] * own.message_bytes / (
            2.2 if name == "packed" else 1.0
        )


def test_topics_that_differ_in_kind_only_are_parts_of_their_own(
    tmp_path: Path, served: Served
) -> None:
    kinds = {"plain": Kind(2, 40, 0.1, 500), "named": Kind(2, 40, 0.1, 500, has_ids=True)}
    served(ServedCluster({name: written(kind, 3, 20.0) for name, kind in kinds.items()}))
    found = parts_in(learned(tmp_path)[0].out)
    has_ids = {name: each.producer.enable_idempotence for name, each in found.items()}
    assert has_ids == {"plain": False, "named": True}


def test_a_prometheus_server_shows_the_weeks_before(
    tmp_path: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, float]] = []

    class Past:
        def history(self, reading: str, from_s: float, to_s: float, step_s: float) -> Any:
            asked.append((reading, to_s - from_s))
            hours = [from_s + step_s * n for n in range(3)]
            return {n: [(at_s, 100.0 * (at_s - from_s)) for at_s in hours] for n in range(3)}

        def close(self) -> None:
            asked.append(("close", 0.0))

    served(ServedCluster({"orders": two_kinds()["orders-de"]}))
    monkeypatch.setattr("jobs.features.learn.learning.open_metrics", lambda *_: Past())
    order = order_in(tmp_path)
    server = "metrics: {prometheus: {server: 'http://p', selector: 'job=\"kafka\"'}}\n"
    text = CLUSTER.replace("metrics: {client_only: true}\n", server)
    Path(order.cluster).write_text(text, encoding="utf-8")
    assert learn(order, RecordingReporter()) == 0
    assert asked == [("messages_in", 28 * 86_400.0), ("close", 0.0)]
    evidence = json.loads((tmp_path / "mine.learned.json").read_text(encoding="utf-8"))
    past = evidence["read"]["cluster_history"]
    assert (past["mean_messages_per_s"], past["peak_messages_per_s"]) == (300.0, 300.0)
    assert len(past["messages_per_s"]) == 2


def test_no_content_of_a_message_is_kept(
    tmp_path: Path, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    kind = Kind(2, 20, 0.1, 400, keys=20, headers=2, secret=SECRET)
    admin = served(ServedCluster({"orders": written(kind, 3, 20.0)}))
    stored = b"".join(each.data for log in admin.logs["orders"].values() for each in log.batches)
    assert SECRET in stored and b"key-0000" in stored, "the words are planted"
    caplog.set_level(logging.DEBUG)
    order = order_in(tmp_path, bounds=Bounds(decodes=True), json_file=tmp_path / "answer.json")
    reporter = RecordingReporter()
    assert learn(order, reporter) == 0
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert len(files) >= 4
    shown = caplog.text + "\n".join(map(str, reporter.events))
    for word in (SECRET, b"key-0000", b"abc"):
        assert word.decode() not in shown
        assert [each.name for each in files if word in each.read_bytes()] == []
    evidence = json.loads((tmp_path / "answer.json").read_text(encoding="utf-8"))
    ((topic,),) = [part["topics"] for part in evidence["parts"]]
    assert topic["decoded"]["keys_seen"] == 20, "they were read"


def test_programs_find_all_keys_of_the_evidence(tmp_path: Path, served: Served) -> None:
    admin = served(ServedCluster(two_kinds()))
    admin.committed = {"billing": {"clicks": (3, 40)}}
    learned(tmp_path, bounds=Bounds(decodes=True))
    evidence = evidence_in(tmp_path)
    assert not lost_keys("learned.json", evidence)
    assert not keys_of(evidence) - set(frozen()["keys of learned.json"]), "publish new keys"


@pytest.mark.parametrize("fetches", [0, 6])
def test_an_interrupt_writes_what_was_read_and_goes_on(
    fetches: int, tmp_path: Path, served: Served
) -> None:
    admin = served(ServedCluster(two_kinds()))

    def interrupt() -> None:
        if admin.requests.count("FetchRequest") >= fetches:
            raise KeyboardInterrupt

    admin.before_fetch = interrupt
    order, reporter = order_in(tmp_path), RecordingReporter()
    with pytest.raises(KeyboardInterrupt):
        learn(order, reporter)
    assert order.out.exists() == bool(fetches)
    if fetches:
        assert evidence_in(tmp_path)["read"]["interrupted"] is True
        assert any(
            text.startswith("interrupted; the data that was read") for text in texts(reporter)
        )


def test_a_dry_run_says_what_would_be_read_and_reads_nothing(
    tmp_path: Path, served: Served
) -> None:
    admin = served(ServedCluster(two_kinds()))
    order, reporter = learned(tmp_path, dry_run=True)
    assert admin.requests == []
    assert not order.out.exists()
    amount = "the job reads at most 300 MB of recent data in 1 min (5 MB/s) from 3 topics"
    assert amount in texts(reporter)[0]


def test_errors_say_what_to_do(tmp_path: Path, served: Served, snapshot: SnapshotAssertion) -> None:
    kinds = two_kinds()
    found = {}

    def refused(name: str, admin: ServedCluster, kind: type[Exception], **changes: Any) -> None:
        served(admin)
        with pytest.raises(kind) as error:
            learn(order_in(tmp_path, **changes), RecordingReporter())
        found[name] = str(error.value).replace(str(tmp_path), "FOLDER")

    refused("no match", ServedCluster(kinds), ConfigError, topics=("order",))
    refused("no topics", ServedCluster({}), ConfigError)
    refused("no data", ServedCluster({"empty": {0: PartitionOfLog()}}), NoConclusionError)
    may_not_read = ServedCluster({"clicks": kinds["clicks"]})
    may_not_read.refused = {"clicks"}
    refused("may not read", may_not_read, ConfigError)
    may_not_describe = ServedCluster({"clicks": kinds["clicks"]})
    may_not_describe.hidden = {"clicks"}
    refused("may not describe", may_not_describe, ConfigError)
    refused("own brokers", ServedCluster(kinds), ConfigError, cluster="testbed")
    (tmp_path / "mine.yaml").write_text("mine", encoding="utf-8")
    refused("existing file", ServedCluster(kinds), ConfigError)
    profile = (tmp_path / "mine.yaml").rename(tmp_path / "mine.profile.yaml")
    refused("existing profile", ServedCluster(kinds), ConfigError)
    assert profile.read_text(encoding="utf-8") == "mine"
    assert found == snapshot


def test_what_is_missing_is_said(tmp_path: Path, served: Served) -> None:
    admin = served(ServedCluster({**two_kinds(), "empty": {0: PartitionOfLog()}}))
    admin.configs = {"clicks": {"cleanup.policy": "compact", "min.insync.replicas": "2"}}
    admin.groups = refuses("ClusterAuthorizationFailedError")  # type: ignore[method-assign]
    order, reporter = learned(tmp_path)
    for part in (
        "consumer groups are unknown",
        "clicks: the topic is compacted, and the rates count all written records",
        "topics are left out, because they have no record in the last hour: empty",
    ):
        assert [text for text in texts(reporter) if part in text], part
    clicks = YAML(typ="safe").load(order.out.read_text(encoding="utf-8"))["mix"]["clicks"]
    assert clicks["producer"]["acks"] == "all"
    assert clicks["topic"]["config"]["min.insync.replicas"] == 2


def test_a_long_curve_makes_a_profile(tmp_path: Path, served: Served) -> None:
    kind = Kind(1, 0.05, 0.0, 100, has_ids=True)
    served(ServedCluster({"slow": written(kind, 2, 30 * 3_600.0)}))
    order, reporter = learned(tmp_path, moment="peak")
    profile = load_rate_profile(str(tmp_path / "mine.profile.yaml"))
    assert profile.length_s == pytest.approx(30 * 3_600.0, abs=7_200)
    assert 0.9 <= profile.mean <= 1.0
    rate = load_workload(str(order.out)).producer.rate_records_per_s
    assert rate is not None and rate >= 10 / 300
    assert [text for text in texts(reporter) if "the curve covers 29.0 hours" in text]


def test_a_topic_with_a_message_now_and_then_does_not_lengthen_trials(
    tmp_path: Path, served: Served
) -> None:
    rare = Kind(1, 0.01, 0.0, 100, codec="gzip")
    served(ServedCluster({**two_kinds(), "rare": written(rare, 1, 3_000.0)}))
    order, reporter = learned(tmp_path)
    assert [each.trial.measure_s for each in parts_in(order.out).values()] == [45, 45]
    assert [text for text in texts(reporter) if text.endswith("needs more messages: rare")]


def test_the_command_has_the_same_moments_and_refuses_a_wrong_option(tmp_path: Path) -> None:
    (option,) = [each for each in command.params if each.name == "moment"]
    assert list(option.type.choices) == [PEAK, MEAN, NOW]  # type: ignore[attr-defined]
    wrong = ["--cluster", "x.yaml", "--topics", "a", "--out", str(tmp_path)]
    done = CliRunner().invoke(command, wrong)
    assert isinstance(done.exception, ConfigError)
    assert "--out" in str(done.exception)


def test_members_that_brokers_do_not_report_are_assumed(tmp_path: Path, served: Served) -> None:
    admin = served(ServedCluster({"clicks": two_kinds()["clicks"]}))
    admin.committed = {"billing": {"clicks": (3, 40)}}
    assert line_of(learned(tmp_path)[0], "members: 3 ").count("# seen: mean of all groups") == 1
    unknown = {"error": "UnsupportedVersion"}
    admin.client.describe_groups = lambda names: dict.fromkeys(names, unknown)
    order, _ = learned(tmp_path, out=tmp_path / "assumed.yaml")
    assert "# assumed: the brokers" in line_of(order, "members: 1 ")
