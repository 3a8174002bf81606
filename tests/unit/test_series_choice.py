"""The choice of the series of each reading, on pages of many rules and releases of the exporter."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.config.metrics_registry import load_rules
from metrics.sources.beans import FROM_FIRST_USE, PRODUCE_ERRORS, Role
from metrics.sources.exposition import Poll, series_of
from metrics.sources.rules import missing_readings
from metrics.sources.series_choice import Behavior, Choices, choose, count_behavior, idle_behavior
from tests.support.exporter_pages import RULES, BrokerState, page
from tests.support.page_table import ROWS, cells_of, stated_rows

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data"
IDLE = "handler_idle_ns"
POOL = "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent"
BYTES = "kafka_server_brokertopicmetrics_bytesin"
REST = BrokerState()


def chosen(*texts: str, seconds: float = 1.0) -> Choices:
    return choose([Poll(1_000.0 + seconds * number, text) for number, text in enumerate(texts)])


def by_rules(rules: str, release: int = 1, version: str = "4.1") -> Choices:
    states = (REST, REST.later())
    return choose([Poll(s.at_s, page(rules, s, release=release, version=version)) for s in states])


def recorded(name: str) -> Choices:
    """The choices on a page that was recorded of a broker."""
    text = gzip.decompress((DATA / f"exporter/{name}.txt.gz").read_bytes()).decode()
    return chosen(text, text)


def test_on_a_recorded_page_the_same_series_are_found_as_by_its_rule_set() -> None:
    page = gzip.decompress((DATA / "exporter/kafka-kraft-4.1.2.txt.gz").read_bytes()).decode()
    names = [series for each in page.split("\n") if (series := series_of(each))]
    of_page, of_rules = (
        {
            name: match.reading
            for name in names
            if (match := rules.match(name)) is not None
            if not match.reading.startswith(PRODUCE_ERRORS)  # only rules name it
        }
        for rules in (chosen(page, page).rules, load_rules("kafka-kraft"))
    )
    assert of_page == of_rules
    assert len(of_page) > 50


@pytest.mark.parametrize("rules", RULES)
def test_the_readings_that_rules_show_are_those_of_the_page(
    rules: str, snapshot: SnapshotAssertion
) -> None:
    found = by_rules(rules, release=0)
    shown = sorted(each for each in found.selectors if each not in FROM_FIRST_USE)
    missing = missing_readings(found.selectors, (Role.BROKER,))
    refused = [each.text for each in found.refused]
    all_of_it = {"read": shown, "missing": missing, "chosen": found.preferred, "refused": refused}
    assert all_of_it == snapshot


@pytest.mark.parametrize("release", [0, 1])
def test_the_table_of_the_docs_is_what_is_read(release: int) -> None:
    stated, rates = stated_rows(), ROWS["one-minute rates"]
    reporter = ROWS["Strimzi's Metrics Reporter"]
    found = recorded("strimzi-metrics-reporter-0.2.0-4.1.2")
    assert cells_of(found.selectors) == stated[reporter]
    # It shows counts where other rules show rates.
    assert found.texts[IDLE] == f"{POOL}_total"
    assert found.texts["bytes_in"] == f"{BYTES}persec_total"
    assert (found.refused, found.preferred) == ((), ())
    seen = {rates, reporter}  # rates are read by further polls: test_rate_choice.py
    for rules in RULES:
        for agent in (True, False):
            row = ROWS.get(rules if agent else f"{rules}, stand-alone", rates)
            if row == rates:
                continue
            states = (REST, REST.later())
            polls = [Poll(s.at_s, page(rules, s, release=release, agent=agent)) for s in states]
            assert cells_of(choose(polls).selectors) == stated[row], (row, release)
            seen.add(row)
    assert seen == stated.keys()


def test_the_choices_on_two_polls_of_a_few_series(snapshot: SnapshotAssertion) -> None:
    cases = (DATA / "exporter/choices.txt").read_text().split("\n## ")[1:]
    found = {}
    for case in cases:
        title, _, pages = case.partition("\n")
        first, _, second = pages.partition("\n# then\n")
        choices = chosen(first, second or first)
        read = [f"{name}: {series}" for name, series in choices.texts.items()]
        found[title] = [*read, *choices.preferred, *(e.text for e in choices.refused)]
    assert found == snapshot


def test_of_a_count_and_a_rate_that_differ_in_total_the_numbers_tell() -> None:
    assert choose([Poll(0.0, page("confluent", REST))]).needs_poll, "names leave a doubt"
    assert not choose([Poll(0.0, page("none", REST))]).needs_poll
    found = by_rules("confluent", release=0)
    assert not found.needs_poll
    assert found.texts[IDLE] == POOL
    assert found.texts["bytes_in"] == f"{BYTES}persec"
    assert found.texts["isr_shrinks"] == "kafka_server_replicamanager_isrshrinkspersec"
    (sentence,) = found.preferred
    assert f"{POOL} and not {POOL}_total" in sentence


def test_of_a_count_and_a_rate_with_one_name_the_exporter_tells() -> None:
    # Release 1 drops `_total` from gauges, and adds a label that ends in the attribute.
    found = by_rules("confluent", release=1)
    bean = "kafka.server<type=KafkaRequestHandlerPool, name=RequestHandlerAvgIdlePercent><>"
    assert found.texts[IDLE] == f'{POOL}{{_objectname="{bean}Count"}}'
    assert not found.refused


def test_a_rate_alone_is_refused_by_its_numbers() -> None:
    by_numbers = by_rules("one-minute rates")
    assert {each.reading for each in by_numbers.refused} >= {IDLE, "bytes_in", "isr_shrinks"}
    (sentence,) = by_numbers.refusals
    assert sentence.endswith(f"(and {len(by_numbers.refused) - 1} more readings)")
    assert "not a count" in by_numbers.refused[0].why


def test_the_process_of_a_standalone_exporter_is_not_the_broker() -> None:
    assert by_rules("none").selectors["uptime_ms"][0].name == "java_lang_Runtime_Uptime"
    agent = by_rules("strimzi").selectors
    assert agent["uptime_ms"][0].is_start_time
    assert agent["process_cpu_ns"][0].factor == 1e9
    newest = by_rules("strimzi", version="4.2").texts
    assert newest["broker_handler_idle_ns"] != newest[IDLE]
    for name, is_read in (("javaagent", True), ("httpserver", False), ("standalone", False)):
        build = f'jmx_exporter_build_info{{version="1.1.0",name="jmx_prometheus_{name}",}} 1.0\n'
        found = chosen(page("strimzi", REST) + build).selectors
        assert ("uptime_ms" in found, "heap_used_bytes" in found) == (is_read, is_read)
        assert "uptime_ms" in chosen(page("none", REST) + build).selectors  # of the broker's beans


def test_a_bean_of_the_first_use_is_expected_under_the_name_of_its_like() -> None:
    found = chosen(re.sub(r"^kafka_log_LogFlush.*\n", "", page("none", REST), flags=re.MULTILINE))
    flushes = 'kafka_log_LogFlushStats_Mean{name="LogFlushRateAndTimeMs"}'
    assert found.selectors["log_flush_ms_mean"][0].text == flushes
    assert found.selectors == by_rules("none").selectors


def test_counts_and_idle_times_are_told_from_rates() -> None:
    count, no_count, unknown = Behavior.COUNT, Behavior.NO_COUNT, Behavior.UNKNOWN
    counts: list[tuple[list[float], Behavior]] = [
        ([5, 5], count), ([5, 9], count), ([9, 5], no_count), ([5, 5.5], no_count),
        ([-1, -1], no_count), ([0, 0], unknown), ([0], unknown),
    ]  # fmt: skip
    for numbers, behavior in counts:
        assert count_behavior(list(map(float, numbers))) is behavior, numbers
    # At work, no handler waits; at rest with a controller's handlers, the pool shows 2.0.
    times: list[tuple[list[float], Behavior]] = [
        ([5e11, 5.0098e11], count), ([5e11, 5e11], count), ([5e11, 5.02e11], count),
        ([5e11, 6e11], no_count), ([5e11, 4e11], no_count), ([0.98, 0.99], no_count),
        ([1.0, 1.0], no_count), ([0.0, 0.0], unknown), ([97.5, 97.6], no_count),
    ]  # fmt: skip
    for numbers, behavior in times:
        assert idle_behavior(numbers, 1.0) is behavior, numbers
