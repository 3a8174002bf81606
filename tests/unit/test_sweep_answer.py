"""The answer of a sweep: effects with their intervals, in sentences, table, JSON and page."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.campaigns.campaign import measurement_named, own_names
from jobs.features.sweep.cases import load_sweep, results_of
from jobs.features.sweep.from_tables import answer_from
from jobs.features.sweep.sweep_run import axes_of, in_order
from metrics.comparing.effects import BETWEEN_STARTS_SD, Conclusion
from metrics.comparing.figures import CASE, LIMIT, TIME, FigureKind, Result, effects_of, sentence
from metrics.features.sweep.answer import SweepAnswer, recommendations
from metrics.features.sweep.charts import sweep_page, sweep_specs, write_sweep_chart
from metrics.reporting.summary import RunSummary, trial_document
from metrics.trial.trial import Trial
from tests.support.frozen import lost_keys
from tests.support.report_rows import summary_of_sizes
from tests.support.rows import PATTERN, trial
from tests.support.sweep_rows import ACKS, as_rows, point_row, run_rows
from tests.support.sweeps import load_answer
from tests.support.vega_lite import fits_schema

THREADS = "cluster.testbed.properties.num.io.threads"
BROKERS = "cluster.testbed.brokers"


def figures(
    ratio: float, repeats: int, noise: float, seed: int = 1, width: float = 0.06
) -> list[Result]:
    """Two axes: acks changes the figure by a ratio, threads do nothing."""
    chance = random.Random(seed)
    found = []
    for repeat in range(1, repeats + 1):
        drift = math.exp(0.1 * chance.gauss(0, 1))
        for acks, times in (("1", 1.0), ("all", ratio)):
            for threads in ("1", "2"):
                value = 20.0 * drift * times * math.exp(noise * chance.gauss(0, 1))
                settings = {ACKS: acks, THREADS: threads}
                low, high = value * (1 - width / 2), value * (1 + width / 2)
                found.append(Result(settings, repeat, 1000, value, low, high))
    return found


AXES = {ACKS: ("1", "all"), THREADS: ("1", "2")}


def answer(results: list[Result], axes: Mapping[str, tuple[str, ...]], **more: Any) -> SweepAnswer:
    times = ("2026-11-22T10:00:00Z", "2026-11-22T11:00:00Z")
    found = SweepAnswer(
        "s1", *times, "done", 0, None, "one machine", "mine", "what <acks> costs", "A study 2019: "
        "less", "limit", "MB/s", LIMIT, axes, 4, tuple(results),
    )  # fmt: skip
    return replace(found, **more)


def one_axis(
    values: Mapping[str, float | None], width: float | None = None, axis: str = ACKS, **more: Any
) -> SweepAnswer:
    """The answer of one measurement of each value of an axis, with intervals of a width."""
    results = []
    for name, value in values.items():
        result = Result({axis: name}, 1, 1000, value, why="" if value else "no load was sustained")
        if value and width is not None:
            result = replace(result, low=value * (1 - width), high=value / (1 - width))
        results.append(result)
    return answer(results, {axis: tuple(values)}, **more)


def test_an_effect_is_reported_and_the_others_state_the_smallest_detectable_one(
    snapshot: SnapshotAssertion,
) -> None:
    acks, threads = effects_of(figures(0.8, 4, 0.01), AXES)
    assert acks.effect is not None and threads.effect is not None
    assert acks.effect.low < 0.8 < acks.effect.high
    assert acks.conclusion is Conclusion.REGRESSION
    assert threads.conclusion is Conclusion.NONE_SEEN
    assert acks.by_repeats and acks.count == 8
    assert list(map(sentence, (acks, threads))) == snapshot
    # Equal limits: one bracket closed right below them, the other 14 % lower.
    near, far = (Result({ACKS: n}, 1, 1000, v, 7.6, 8.4) for n, v in (("1", 7.9), ("all", 6.9)))
    (found,) = effects_of([near, far], {ACKS: ("1", "all")})
    assert found.effect is not None and found.effect.ratio == pytest.approx(1.0)
    assert found.conclusion is Conclusion.NONE_SEEN


def test_a_case_without_an_answer_is_left_out_and_reported() -> None:
    (found,) = one_axis({"1": 20.0, "all": None}).effects
    assert (found.effect, found.conclusion) == (None, Conclusion.NO_ANSWER)
    assert "no answer" in sentence(found)
    page = sweep_page(one_axis({"1": None, "all": None}))
    assert "no answer" in page and "no load was sustained" in page
    assert "vegaEmbed" not in page, "a page without figures has no charts"


EXPERIMENTS = 150


@pytest.mark.computes
def test_equal_cases_raise_an_alarm_in_few_of_many_experiments() -> None:
    """With four repeats; and with one, by figures that are sure to 1 %, though starts differ."""
    rng, alarms = random.Random(5), [0, 0]
    for seed in range(EXPERIMENTS):
        values = {each: 10.0 * math.exp(rng.gauss(0.0, BETWEEN_STARTS_SD)) for each in ("1", "all")}
        repeated = effects_of(figures(1.0, 4, 0.03, seed), AXES)
        for kind, found in enumerate((repeated, one_axis(values, width=0.01).effects)):
            alarms[kind] += any(each.conclusion is not Conclusion.NONE_SEEN for each in found)
    assert max(alarms) <= EXPERIMENTS * 0.05 + 3 * math.sqrt(EXPERIMENTS * 0.05 * 0.95)


def test_results_have_the_order_of_the_experiment(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    text = f"workload: 1kB\naxes:\n  {ACKS}: ['1', all]\n  {THREADS}: [1, 2, 4]\n"
    file.write_text(text, encoding="utf-8")
    loaded = load_sweep(str(file))
    assert axes_of(loaded) == {ACKS: ("1", "all"), THREADS: ("1", "2", "4")}
    results = [Result(case.settings, n, 1000, 10.0) for case in loaded.cases for n in (1, 2)]
    assert in_order(loaded, results[::-1]) == results


def test_json_and_page_have_the_whole_answer_and_the_page_loads_nothing() -> None:
    results = figures(0.8, 4, 0.01)
    results[0] = replace(results[0], run_id="s1-c01-r1")
    found = answer(results, AXES)
    document = json.loads(found.document())
    assert len(document["results"]) == 16 and not lost_keys("sweep.json", document)
    assert [each["words"] for each in document["effects"]] == list(found.sentences)
    assert document["effects"][0]["conclusion"] == "regression"
    assert document["effects"][0]["effect"]["ratio"] == pytest.approx(0.8, rel=0.02)
    page = sweep_page(found)
    links = ('<a href="s1-c01-r1/report.html">', "By acks", "By num.io.threads")
    sentences = (f"<li>{text}.</li>" for text in found.sentences)
    for part in ("What &lt;acks&gt; costs.", *sentences, *links):
        assert part in page
    assert "src=" not in page.split("<script>")[0]
    (_, spec), *_ = sweep_specs(found)
    assert len(spec["hconcat"]) == 1, "no case has a latency"


KIND, CODEC = "workload.payload.kind", "workload.producer.compression"


def crossed(gain: float) -> tuple[str, ...]:
    """A grid in which a codec has this gain with one kind of payload, and loses 16 % otherwise."""
    figures = {("random", "none"): 8.0, ("random", "zstd"): 6.7,
               ("repeated", "none"): 8.2, ("repeated", "zstd"): 8.2 * gain}  # fmt: skip
    results = [
        Result({KIND: kind, CODEC: codec}, 1, 1000, value, low=value * 0.95, high=value / 0.95)
        for (kind, codec), value in figures.items()
    ]
    axes = {KIND: ("random", "repeated"), CODEC: ("none", "zstd")}
    return answer(results, axes).sentences


def test_an_effect_that_is_not_the_same_everywhere_is_split(snapshot: SnapshotAssertion) -> None:
    assert crossed(1.35) == snapshot
    texts = crossed(0.85)
    assert [each.split(":")[0] for each in texts] == [
        "kind repeated against random, 1 kB",
        "compression zstd against none, 1 kB",
    ], "it may be the same everywhere"
    assert "-15.6%" in texts[1]
    results = [
        Result({KIND: size, CODEC: size}, 1, 1000, value, low=value * 0.95, high=value / 0.95)
        for size, value in (("100", 8.0), ("1000", 6.0))
    ]
    (text,) = answer(results, {KIND: ("100", "1000"), CODEC: ("100", "1000")}).sentences
    assert text.startswith("kind, compression 1000, 1000 against 100, 100, 1 kB: 25.0% less")


def test_cases_with_names_are_called_by_them(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    value = {"set to 100 kB": 2.0, "tuned": 90.0, "set to 1 MiB": 3.0}
    results = [
        Result({CASE: name}, 1, 1000, mb_per_s, p99_ms=9.0) for name, mb_per_s in value.items()
    ]
    named = {name: {KIND: "random", CODEC: f"{i}"} for i, name in enumerate(value)}
    found = answer(results, {CASE: tuple(value)}, named=named)
    assert found.columns[0] == "case"
    assert [each.split(", from 1 pair")[0] for each in found.sentences] == [
        "tuned against set to 100 kB, 1 kB: 45 times as much",
        "set to 1 MiB against set to 100 kB, 1 kB: +50.0%",
    ]
    assert found.advices[0] == snapshot
    assert found.meanings[1] == "tuned: kind random, compression 1"
    assert f"<li>{found.meanings[1]}.</li>" in sweep_page(found)
    headings = [heading for heading, _ in sweep_specs(found)]
    assert headings == ["By case", "Throughput against latency"]
    file = tmp_path / "sweep.json"
    file.write_text(found.document(), encoding="utf-8")
    assert load_answer(file) == found
    document = json.loads(found.document())
    del document["named"], document["kind"]  # as an older version left it
    for asks in ("limit", "load", "fill", "drain", "failover"):
        file.write_text(json.dumps(document | {"asks": asks}), encoding="utf-8")
        older = load_answer(file)
        assert older.named == {}
        assert older.kind == measurement_named(asks).figure


def test_times_without_an_interval_state_the_number_of_measurements(
    snapshot: SnapshotAssertion,
) -> None:
    found = one_axis({"1": 8.0, "all": 10.0}, asks="fill", unit="s", kind=TIME)
    (text,) = found.sentences
    assert text == snapshot
    assert found.advices == ("the shortest time: acks 1 (8 s)",)


VOLUME = trial(pattern=replace(PATTERN, phases=replace(PATTERN.phases, volume_bytes=100)))


def held(*trials: Trial) -> RunSummary:
    documents = tuple(map(trial_document, trials))
    return replace(summary_of_sizes([]), trials=documents, status="no conclusion")


def test_an_invalid_trial_gives_no_figure_for_any_question() -> None:
    made = held(VOLUME)
    for asks, key in (("failover", "leaders_back_s"), ("fill", "moved_s"), ("load", "mb_per_s")):
        valid = replace(made, trials=({**made.trials[0], key: 2.0},))
        invalid = replace(made, trials=({**valid.trials[0], "verdict": "INVALID"},))
        (given,), (refused,) = (
            results_of(measurement_named(asks), {}, 1, each) for each in (valid, invalid)
        )
        assert given.value is not None and refused.value is None
        assert refused.why == made.trials[0]["reasons"][0]


def test_a_time_that_was_not_measured_is_no_answer() -> None:
    moved = replace(held(VOLUME), trials=({**held(VOLUME).trials[0], "moved_s": 2.0},))
    back, gone = (held(trial(leaders_back_s=each)) for each in (2.5, None))
    for asks, made, value, why in (
        ("fill", moved, 2.0, ""),
        ("drain", moved, None, "a part of the volume was missing"),
        ("failover", back, 2.5, ""),
        ("failover", gone, None, "some partitions had no leader"),
    ):
        (found,) = results_of(measurement_named(asks), {}, 1, made)
        assert found.value == value
        assert why in found.why and bool(found.why) == bool(why)


def test_a_time_is_longer_or_shorter_and_not_more_or_less() -> None:
    ratio = FigureKind("cold start ratio", less_is_better=True)
    for times, kind, words, change, worse in (
        (0.8, measurement_named("limit").figure, "% less", "loss", True),
        (0.8, measurement_named("fill").figure, "% shorter", "change", False),
        (1.3, measurement_named("drain").figure, "% longer", "change", True),
        (3.0, measurement_named("failover").figure, " times as long", "change", True),
        (3.0, ratio, " times as much", "change", True),
        (1.5, LIMIT, "% more", "loss", False),
    ):
        unit = "ratio" if kind is ratio else "s" if kind.less_is_better else "MB/s"
        found = answer(figures(times, 4, 0.01), AXES, kind=kind, unit=unit)
        acks, threads = found.effects
        assert f"{words}, 95% interval" in found.sentences[0]
        assert f"detectable {change} is" in found.sentences[1]
        worst = Conclusion.REGRESSION if worse else Conclusion.IMPROVEMENT
        assert (acks.conclusion, threads.conclusion) == (worst, Conclusion.NONE_SEEN)
    lowest = answer(figures(3.0, 4, 0.01), AXES, kind=ratio, unit="ratio").advices[0]
    assert lowest.startswith("the lowest cold start ratio: ")


def test_sentences_and_columns_have_words_instead_of_keys() -> None:
    results = [
        Result({"workload.np": producers, "workload.message_bytes": size}, 1, 1000, value)
        for producers, value in (("4", 17.0), ("64", 1.2))
        for size in ("100", "200")
    ]
    axes = {"workload.np": ("4", "64"), "workload.message_bytes": ("100", "200")}
    found = answer(results, axes)
    assert found.columns[:2] == ("producers", "bytes per message")
    assert found.sentences[0].startswith("producers 64 against 4, 1 kB: ")
    assert any(each.startswith("bytes per message 200 against 100") for each in found.sentences)
    assert "producers 4, bytes per message" in found.advices[0]


def test_clusters_of_several_sizes_are_drawn_on_one_graph_and_per_broker(tmp_path: Path) -> None:
    results = [
        Result({BROKERS: str(n)}, 1, message_bytes, 10.0 * n, p99_ms=5.0, brokers=n)
        for n in (1, 2, 3)
        for message_bytes in (100, 1000)
    ]
    found = answer(results, {BROKERS: ("1", "2", "3")})
    specs = dict(sweep_specs(found))
    assert list(specs) == ["By brokers", "By message size", "Throughput against latency"]
    for spec in specs.values():
        fits_schema(spec)
    total, per_broker = specs["By message size"]["hconcat"]
    assert total["layer"][1]["encoding"]["y"]["title"] == "limit [MB/s]"
    assert per_broker["layer"][1]["encoding"]["y"]["title"] == "per broker [MB/s]"
    text = json.dumps(specs["By message size"])
    assert text.count('"per_broker": 10.0') >= len(results)
    write_sweep_chart(found, tmp_path / "sweep.png")
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_cases_that_change_several_keys_are_drawn_by_their_names(tmp_path: Path) -> None:
    cases = ({ACKS: "1", THREADS: "1"}, {ACKS: "all", THREADS: "2"}, {ACKS: "1", THREADS: "8"})
    results = [
        Result(settings, repeat, 100, 10.0 * n, 9.0 * n, 11.0 * n, p99_ms=5.0)
        for repeat in (1, 2)
        for n, settings in enumerate(cases, 1)
    ]
    found = answer(results, {ACKS: ("1", "all"), THREADS: ("1", "2", "8")})
    specs = dict(sweep_specs(found))
    # Two cases have acks 1, and their threads differ alone; none differ in acks alone.
    assert list(specs) == ["By case", "By num.io.threads", "Throughput against latency"]
    figures_of, latencies = specs["By case"]["hconcat"]
    bar, points, interval = figures_of["layer"]
    named = ["acks 1, num.io.threads 1", "acks all, num.io.threads 2", "acks 1, num.io.threads 8"]
    assert bar["encoding"]["y"]["sort"] == named
    assert bar["encoding"]["x"]["aggregate"] == "median"
    assert points["mark"]["type"] == "point" and interval["mark"]["type"] == "rule"
    assert [interval["encoding"][end]["field"] for end in ("x", "x2")] == ["low", "high"]
    assert len(latencies["layer"]) == 2, "a latency has no interval"
    write_sweep_chart(found, tmp_path / "cases.svg")
    drawn = (tmp_path / "cases.svg").read_text(encoding="utf-8")
    assert drawn.count("num.io.threads 8") >= 1, "a line for each setting"


def test_rows_have_figures_the_reason_of_a_missing_one_and_the_costs_of_a_fixed_load() -> None:
    known = Result({ACKS: "1"}, 1, 1000, 123.4, 120.0, 126.0, 1.5, 27.3, 99.0, "disk")
    missing = Result({ACKS: "all"}, 1, 1000, None, why="no load was sustained")
    found = answer([known, missing], {ACKS: ("1", "all")})
    assert found.columns[:4] == ("acks", "size", "repeat", "limit MB/s")
    first, second = found.rows
    assert first == ("1", "1 kB", "1", "123", "120 to 126", "1.50", "27.3", "disk")
    assert second[:5] == ("all", "1 kB", "1", "?", "no load was sustained")
    plain = Result({ACKS: "1"}, 1, 100, 10.0, cpu_s_per_mb=0.002, broker_cpu_s_per_mb=0.004,
                   log_bytes_per_byte=1.11)  # fmt: skip
    held = replace(answer([plain], {ACKS: ("1", "all")}), kind=measurement_named("load").figure)
    shown = dict(zip(held.columns, held.rows[0], strict=True))
    costs = {"CPU-s/MB": "0.002", "broker CPU-s/MB": "0.004", "log B/B": "1.11"}
    assert {head: shown[head] for head in costs} == costs
    assert "commit ms" not in held.columns
    with_commits = replace(held, results=(plain, replace(plain, commit_ms=103.4)))
    place = with_commits.columns.index("commit ms")
    assert [row[place] for row in with_commits.rows] == ["?", "103"]


def rows_of_sweep(statuses: dict[str, str]) -> list[dict[str, Any]]:
    return [row for acks, status in statuses.items() for row in as_rows(run_rows(acks, 1, status))]


def test_a_sweep_is_read_back_from_its_rows() -> None:
    runs = rows_of_sweep({"1": "done", "all": "done"})
    found = answer_from(runs, as_rows([point_row("1"), point_row("all")]), [])
    assert (found.sweep_id, found.experiment, found.unit) == ("s1", "acks", "MB/s")
    assert (found.status, found.asks, found.repeats) == ("done", "limit", 1)
    assert found.axes == {ACKS: ("1", "all")}
    read = [(each.run_id, each.value, each.p99_ms) for each in found.results]
    assert read == [("s1-c01-r1", 20.0, 9.0), ("s1-c02-r1", 15.0, 9.0)]
    assert found.sentences[0].startswith("acks all against 1, 1 kB: 25.0% less")
    killed = rows_of_sweep({"1": "done", "all": "interrupted"})
    found = answer_from(killed, as_rows([point_row("1")]), [])
    assert [each.settings[ACKS] for each in found.results] == ["1"], "its finished case"
    assert "no answer" in found.sentences[0]
    nothing = answer_from(rows_of_sweep({"1": "failed"}), [], [])
    assert (nothing.status, nothing.exit_code) == ("no conclusion", 3)


def test_the_measurement_of_a_sweep_is_read_from_its_runs() -> None:
    """The trials alone would say that a load was held."""
    older = rows_of_sweep({"1": "done"})
    held = as_rows([replace(trial(), run_id=older[0]["run_id"])])
    assert answer_from(older, [], held).asks == "load"
    for asks in own_names():
        found = answer_from([{**row, "measurement": asks} for row in older], [], held)
        assert (found.asks, found.kind) == (asks, measurement_named(asks).figure)
        assert found.unit == ("s" if found.kind.less_is_better else "MB/s")


def test_the_best_cases_are_named_with_those_that_do_not_differ_from_them(
    snapshot: SnapshotAssertion,
) -> None:
    batches = "workload.producer.batch_size"
    figures = {"1": (10.0, 2.0), "2": (18.4, 9.0), "3": (20.0, 30.0), "4": (19.9, 40.0)}
    results = [
        Result({batches: name}, repeat, 100, value, 0.99 * value, 1.01 * value, p99_ms=p99)
        for name, (value, p99) in figures.items()
        for repeat in range(1, 13)
    ]
    found = {each.aim: each for each in recommendations(results)}
    best = {aim: each.best.settings[batches] for aim, each in found.items()}
    assert best == {"throughput": "3", "latency": "1", "both": "2"}
    assert found["throughput"].alike == ({batches: "4"},)
    found_answer = answer(results, {batches: ("1", "2", "3", "4")})
    assert found_answer.advices[0] == snapshot
    recommended = json.loads(found_answer.document())["recommended"]
    assert recommended[2]["best"]["settings"] == {batches: "2"}
    assert "Best for throughput and latency: batch_size 2" in sweep_page(found_answer)
    assert list(recommendations(results[:2])) == [], "one case is no choice"
