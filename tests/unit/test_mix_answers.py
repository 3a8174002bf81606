"""The answer of a search for the scale of a mix, on terminals, on pages and for programs.

Plans and exports of a mix: its parts in their proportions, at a scale or a payload.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import jsonschema
import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML
from syrupy.assertion import SnapshotAssertion

from jobs.config.loading import load, load_workload
from jobs.console.printing import point_words, trial_header
from jobs.features.plan.planning import limits_of
from jobs.plan import export, plan
from jobs.runs.estimate import mean_replicas, payload_rate, plan_of
from jobs.trials.calibration import Calibration, calibration_table
from jobs.trials.context import RunContext
from metrics.common.errors import ConfigError
from metrics.planning.planted import HandlerTime, PlantedRates, planted_scale
from metrics.planning.provisioning import (
    BETWEEN_RUNS,
    Demand,
    MeasuredLimit,
    TrafficShare,
    provision,
)
from metrics.reporting.limit_answer import answer_of
from metrics.reporting.report_page import build_report, report_page
from metrics.reporting.summary import RunSummary, load_summary, summary_schema, write_summary
from metrics.tables.boundary import Boundary, make_boundary
from metrics.traffic.axes import NP, SCALE, Axis, axis_named
from metrics.traffic.payload import record_bytes
from metrics.windows.use import Resource
from search.model import Bracket, Interval
from tests.support.frozen import lost_keys
from tests.support.mixes import MIX
from tests.support.mixes import WHOLE as PATTERN
from tests.support.report_rows import IDLE, overloaded, summary_of_sizes, sustained
from tests.support.rows import traffic, trial


def limit(axis: Axis = SCALE) -> Boundary:
    found = make_boundary(
        Bracket(270, 283), axis, PATTERN, trials=5, reasons=[IDLE],
        limited_by=Resource.REQUEST_HANDLERS, interval=Interval(263.0, 279.0, 271.0),
    )  # fmt: skip
    evidence = "request handlers: broker 3: 88% of their time busy, while the disk did little"
    return replace(found, goal="default", evidence=evidence, confidence=0.95)


def test_the_terminal_states_it_first(snapshot: SnapshotAssertion) -> None:
    answer = answer_of(limit())
    assert "\n".join([*answer.lines, "Why", *answer.why]) == snapshot
    assert ": 2.7 times the mix, 7.56 MB/s" in point_words(limit())
    assert "% of mix" in trial_header("scale")[0]


def test_the_report_of_a_mix_is_a_page() -> None:
    summary = replace(summary_of_sizes([1_000]), boundaries=(limit(),))
    trials = [
        trial(n, summary.run_id, pattern=SCALE.apply(PATTERN, at), judgements={"default": judged})
        for n, (at, judged) in enumerate(((283, overloaded()), (270, sustained())), 1)
    ]
    page = report_page(build_report(summary, trials, {}))
    assert "2.63 to 2.79 times the mix at 90 %" in page and "images (5 ×" in page


def test_the_summary_has_the_scale_and_the_parts(tmp_path: Path) -> None:
    summary = replace(summary_of_sizes([1_000]), boundaries=(limit(),))
    write_summary(summary, tmp_path / "summary.json")
    document = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, summary_schema())
    (boundary,) = document["boundaries"]
    scales = [boundary[f"scale_{each}"] for each in ("sustained", "low", "high")]
    assert scales == [2.7, 2.63, 2.79]
    assert boundary["bpm"] == PATTERN.message_bytes
    assert [each["part"] for each in boundary["parts"]] == ["orders", "clicks", "images"]
    assert load_summary(tmp_path / "summary.json").boundaries[0].parts == limit().parts


# --- forecasts --------------------------------------------------------------------------


def test_a_plan_describes_each_part_and_adds_up_their_bytes() -> None:
    config = load("testbed", MIX, "default")
    plan = plan_of(config)
    assert all(f"{name}: " in plan.producer for name in ("orders", "clicks", "images"))
    assert len([note for note in plan.notes if note.startswith("part ")]) == 3
    assert mean_replicas(config.workload) == pytest.approx(5.4 / 2.8)
    assert payload_rate(config.workload, config.goal).bytes(1) * 100 == pytest.approx(2.8e6)
    config = load("testbed", MIX, "default", ["goal.search.axis=scale.orders"])
    start = config.goal.search.load_start_max
    expected = 1e6 * (2.5 * start / 100 + 0.3)
    assert payload_rate(config.workload, config.goal).bytes(1) * start == pytest.approx(expected)


# --- the planted limit ------------------------------------------------------------------


def test_the_planted_limit_of_a_mix_follows_from_the_requests_of_all_parts() -> None:
    mix = load_workload(str(Path(MIX).with_name("calibrated.yaml"))).pattern(1, 3)
    per_s = sum(each.producers / each.producer.batch_interval_s for each in mix.parts)
    assert per_s == pytest.approx(15 * 31_250 / 14_600 + 11 * 31_250 / 16_000 + 7.8, rel=0.02)
    times = [HandlerTime(60.0, handlers=4)] * 3
    assert planted_scale(times, mix, 0.2) == pytest.approx(3 * 0.8 * 4 / 0.06 / per_s)


def test_a_run_shows_the_planted_limit_beside_the_one_found(snapshot: SnapshotAssertion) -> None:
    table = calibration_table([replace(limit(), scale_planted=2.75)])
    assert table is not None
    assert (table.columns, table.rows) == snapshot


def test_the_planted_limit_of_disks_and_a_link_adds_up_the_bytes_of_all_parts() -> None:
    """Each part alone fills them at a number of producers; together, their shares add up."""
    disks = PlantedRates(disk_bytes_per_s=5e6)
    for rates in (disks, PlantedRates(link_bytes_per_s=20e6)):
        used = sum(1 / (rates.scale(each, 3) or 0.0) for each in PATTERN.parts)
        assert rates.scale(PATTERN, 3) == pytest.approx(1 / used)
    both = PlantedRates(disk_bytes_per_s=5e6, link_bytes_per_s=1e9)
    assert both.scale(PATTERN, 3) == disks.scale(PATTERN, 3)
    assert PlantedRates().scale(PATTERN, 3) is None


def test_a_run_states_the_lowest_of_its_planted_limits() -> None:
    times = (HandlerTime(60.0, handlers=4),) * 3
    disks = PlantedRates(disk_bytes_per_s=5e6).scale(PATTERN, 3)
    handlers, slow = planted_scale(times, PATTERN, 0.2), {"disk.write_rate": "5MB/s"}
    indicators = SimpleNamespace(request_handler_idle_min=0.2)
    cases: list[tuple[dict[str, str], tuple[HandlerTime, ...], float | None]] = [
        ({}, (), None), (slow, (), disks), ({}, times, handlers), (slow, times, handlers),
    ]  # fmt: skip
    for environment, known, planted in cases:
        context = SimpleNamespace(
            config=SimpleNamespace(axis=SCALE),
            environment=environment,
            addresses={1: "a", 2: "b", 3: "c"},
            thresholds={"default": SimpleNamespace(indicators=indicators)},
            pattern=lambda size, load: SCALE.apply(PATTERN, load),
        )
        calibration = Calibration()
        calibration._times = known
        found = calibration.complete(limit(), cast(RunContext, context), "default")
        assert found.scale_planted == (planted and pytest.approx(planted))


POINT = replace(
    make_boundary(
        Bracket(270, 283), SCALE, PATTERN, trials=5, limited_by=Resource.REQUEST_HANDLERS,
        interval=Interval(252.0, 279.0, 271.0),
    ),
    goal="strict", interval_max=0.2,
)  # fmt: skip
"""2.7 times a mix of 2.8 MB/s on three brokers, 2.52 times it at the lower end."""
SUMMARY = RunSummary(
    "run-1", "a", "b", "c", "w", "strict", (POINT,), 3, caveat="a small cluster",
    replication_factor=2,
)  # fmt: skip
LOW = 2.7 * 2.8 / 3 * math.exp(-math.hypot(math.log(2.7 / 2.52), 1.645 * BETWEEN_RUNS))
"""The lower end of the range of a broker's limit on 90 % of days [MB/s]."""


def run(command: click.Command, folder: Path, *options: str, summary: RunSummary = SUMMARY) -> str:
    write_summary(summary, folder / "run-1" / "summary.json")
    done = CliRunner().invoke(command, options, standalone_mode=False, catch_exceptions=False)
    return done.output


def planned(folder: Path, *options: str, summary: RunSummary = SUMMARY) -> dict[str, Any]:
    file = folder / "plan.json"
    place = str(folder / "run-1")
    run(plan, folder, "--run", place, "--json", str(file), *options, summary=summary)
    read: dict[str, Any] = json.loads(file.read_text())
    assert not lost_keys("plan.json", read)
    return read


# --- the number of brokers ----------------------------------------------------------------


def test_a_scale_gives_the_number_of_brokers(tmp_path: Path) -> None:
    found = planned(tmp_path, "--scale", "5")
    assert found["demand"]["mb_per_s"] == pytest.approx(5 * 2.8)
    answer = found["answer"]
    assert answer["limit_mb_per_s_per_broker"] == pytest.approx(2.7 * 2.8 / 3)
    assert answer["low_mb_per_s_per_broker"] == pytest.approx(LOW, rel=1e-4)
    assert answer["brokers"] == 7  # 14 / 2.23
    assert answer["brokers_for_limit"] == 6
    assert answer["scale"] == pytest.approx(7 * LOW / 2.8, rel=1e-4)
    assert answer["binds_first"] == "request handlers"
    assert found["caveat"] == "a small cluster"
    by_payload = planned(tmp_path, "--mb-per-s", "14")
    assert by_payload["demand"]["scale"] == pytest.approx(5)
    assert by_payload["answer"] == answer
    assert planned(tmp_path, "--scale", "5", "--growth", "0.5")["answer"]["brokers"] == 10
    few = planned(tmp_path, "--scale", "0.01")
    assert few["answer"]["brokers"] == 2, "as many as replicas of any part"


def test_the_demand_has_the_sizes_replicas_and_groups_of_the_parts(tmp_path: Path) -> None:
    demand = planned(tmp_path, "--scale", "1")["demand"]
    whole = (demand["bpm"], demand["replication_factor"], demand["consumer_groups"])
    assert whole == (PATTERN.message_bytes, 2, 1)
    assert {
        each["part"]: (each["bpm"], each["replication_factor"], each["consumer_groups"])
        for each in demand["parts"]
    } == {"orders": (1_000, 2, 0), "clicks": (100, 2, 1), "images": (10_000, 1, 0)}
    shares = [each["share"] for each in demand["parts"]]
    assert shares == pytest.approx([2.5 / 2.8, 0.1 / 2.8, 0.2 / 2.8])


def test_a_demand_suits_the_limits_that_it_is_held_against() -> None:
    """As the notebook does it, where a widget has sizes and replicas for all workloads."""
    (limit,) = limits_of(SUMMARY, None)
    demand = Demand(14.0, 1_000, 3, 4)
    assert demand.suited_to([limit]) == demand.of_mix(limit)
    assert demand.suited_to([MeasuredLimit(1_000, 60.0)]) == demand.suited_to([]) == demand
    assert provision([limit], demand.suited_to([limit])).brokers == 7


def test_it_is_printed_as_a_scale(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    printed = run(plan, tmp_path, "--run", str(tmp_path / "run-1"), "--scale", "5")
    assert re.search(r"5 times the mix, 14\.0 MB/s needs", printed)
    assert re.search(r"these brokers sustain +5\.59 times the mix", printed)
    (note,) = [line for line in printed.splitlines() if "proportions" in line]
    assert note.partition("note: ")[2] == snapshot


def test_the_link_carries_each_part_with_its_replicas_and_groups() -> None:
    """Both parts are sent more than received, so the times that a link needs for each add up."""
    shares = (TrafficShare("a", 0.25, 100, 1, 2), TrafficShare("b", 0.75, 10_000, 3, 3))
    limit = MeasuredLimit(500, 1e6, parts=shares, mix_mb_per_s=10.0)
    found = provision([limit], Demand(1_000.0, 1, link_mbit_per_s=1_000.0).of_mix(limit))

    def alone(share: TrafficShare) -> float:
        """Payload of a link with the traffic of one part, as one kind of traffic [MB/s]."""
        size, replicas, groups = (
            share.message_bytes, share.replication_factor, share.consumer_groups,
        )  # fmt: skip
        demand = Demand(1.0, size, replicas, groups, link_mbit_per_s=1_000.0)
        own = MeasuredLimit(size, 1e6, None, replicas, groups)
        return provision([own], demand).plan_mb_per_s_per_broker

    assert found.binds_first == "network link"
    assert alone(shares[0]) > 1.3 * alone(shares[1])
    assert found.plan_mb_per_s_per_broker == pytest.approx(
        1 / (0.25 / alone(shares[0]) + 0.75 / alone(shares[1]))
    )


@pytest.mark.parametrize(
    "options",
    [
        ["--mb-per-s", "1", "--scale", "2"],
        ["--scale", "2", "--message-bytes", "1000"],
        ["--scale", "2", "--replication-factor", "3", "--consumer-groups", "0"],
        [],
    ],
    ids=["two", "size", "replicas", "none"],
)
def test_options_that_do_not_suit_a_mix_are_refused(
    tmp_path: Path, options: list[str], snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(ConfigError) as error:
        planned(tmp_path, *options)
    assert str(error.value) == snapshot


def test_a_scale_needs_a_mix(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    plain = make_boundary(Bracket(720, 756), NP, traffic(1, 1_000, 250.0, brokers=3), trials=4)
    summary = replace(SUMMARY, boundaries=(replace(plain, goal="strict"),))
    with pytest.raises(ConfigError) as error:
        planned(tmp_path, "--scale", "2", summary=summary)
    assert str(error.value) == snapshot(name="run")
    with pytest.raises(ConfigError) as error:
        planned(tmp_path, "--mb-per-s", "2", summary=summary)
    assert str(error.value) == snapshot(name="size")
    with pytest.raises(ConfigError, match=r"--scale is 2 .*--limit"):
        run(plan, tmp_path, "--limit", "60", "--scale", "2")


def test_the_limit_of_one_part_is_no_limit_of_the_mix(snapshot: SnapshotAssertion) -> None:
    point = make_boundary(Bracket(200, 220), axis_named("scale.orders"), PATTERN, trials=5)
    with pytest.raises(ConfigError) as error:
        limits_of(replace(SUMMARY, boundaries=(replace(point, goal="strict"),)), None)
    assert str(error.value) == snapshot


def test_a_summary_without_the_replicas_of_parts_is_older(tmp_path: Path) -> None:
    parts = tuple(replace(each, replication_factor=0) for each in POINT.parts)
    older = replace(SUMMARY, boundaries=(replace(POINT, parts=parts),))
    with pytest.raises(ConfigError, match="older version"):
        planned(tmp_path, "--scale", "2", summary=older)


# --- exports ------------------------------------------------------------------------------


def exported(folder: Path, *options: str, summary: RunSummary = SUMMARY) -> str:
    return run(export, folder, "run-1", "--out", str(folder), *options, summary=summary)


def log_kb(part: str, payload_mb: float) -> float:
    """The bytes in the log of a part's share of 2.8 MB/s of payload, at a broker's limit [kB/s]."""
    size = {"orders": 1_000, "clicks": 100, "images": 10_000}[part]
    return LOW * payload_mb / 2.8 * record_bytes(0, size, 1.0) / size * 1_000


ORDERS, CLICKS, IMAGES = log_kb("orders", 2.5), log_kb("clicks", 0.1), log_kb("images", 0.2)


def test_capacities_count_the_replicas_and_groups_of_each_part(tmp_path: Path) -> None:
    text = exported(tmp_path, "--as", "capacity", "--disk-mb", "500000", "--safety", "0.5")
    (broker,) = json.loads(text)["brokerCapacities"]
    received, fetched = (float(broker["capacity"][name]) for name in ("NW_IN", "NW_OUT"))
    assert received == pytest.approx(0.5 * (2 * ORDERS + 2 * CLICKS + IMAGES), abs=1)
    assert fetched == pytest.approx(0.5 * (ORDERS + 2 * CLICKS), abs=1)
    text = exported(tmp_path, "--as", "quotas", "--tenants", "2", "--safety", "1")
    rates = map(int, re.findall(r"(?:producer|consumer)_byte_rate=(\d+)", text)[:2])
    expected = (1_000 * (ORDERS + CLICKS + IMAGES) / 2, 1_000 * CLICKS / 2)
    assert tuple(rates) == pytest.approx(expected, rel=1e-4), "consumers get what groups read"


def test_alerts_name_the_mix(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    text = exported(tmp_path, "--as", "alerts", "--safety", "1")
    (group,) = YAML(typ="safe").load(text)["groups"]
    written = group["rules"][0]
    limit = float(written["expr"].rpartition(" > ")[2])
    assert limit == pytest.approx(1_000 * (ORDERS + CLICKS + IMAGES), rel=1e-4)
    assert written["annotations"]["description"] == snapshot


def test_a_size_or_a_doubtful_limit_of_a_mix_is_refused(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(ConfigError) as error:
        exported(tmp_path, "--as", "quotas", "--message-bytes", "1000")
    assert str(error.value) == snapshot(name="size")
    doubtful = replace(SUMMARY, boundaries=(replace(POINT, interval_max=0.01),))
    with pytest.raises(ConfigError) as error:
        exported(tmp_path, "--as", "quotas", summary=doubtful)
    assert str(error.value) == snapshot(name="doubt")
