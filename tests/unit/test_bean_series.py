"""Which reading a series is, by the names of its bean in any spelling."""

from __future__ import annotations

import pytest

from metrics.sources.bean_series import BEANS, Meaning, candidates_of
from metrics.sources.beans import PRODUCE_ERRORS
from metrics.sources.rules import ACTIVE_CONTROLLER, NODE_ID, READINGS

POOL = "kafka_server_kafkarequesthandlerpool"
SOCKETS = "kafka_server_socket_server_metrics"
HANDLERS = "RequestHandlerAvgIdlePercent"


def read(series: str, **constant: str) -> list[tuple[str, str]]:
    found = candidates_of(series, frozenset(constant.items()))
    return [(each.reading, each.meaning.value) for each in found]


@pytest.mark.parametrize(
    ("series", "meaning"),
    [
        (f'kafka_server_KafkaRequestHandlerPool_Count{{name="{HANDLERS}",}}', "count"),
        (f'kafka_server_KafkaRequestHandlerPool_OneMinuteRate{{name="{HANDLERS}"}}', "rate"),
        (f'{POOL}_count{{name="{HANDLERS.lower()}"}}', "count"),
        (f'{POOL}_count_total{{NAME="{HANDLERS}"}}', "count"),
        (f"{POOL}_{HANDLERS.lower()}_count", "count"),
        (f"{POOL}_{HANDLERS.lower()}_count_total", "count"),
        (f"{POOL}_requesthandleravgidle_percent", "uncertain"),
        (f"{POOL}_{HANDLERS.lower()}", "uncertain"),
        (f"{POOL}_{HANDLERS.lower()}_total", "uncertain"),
        (f"{POOL}_{HANDLERS.lower()}_oneminuterate", "rate"),
        ("kafka_server_kafka_request_handler_pool_request_handler_avg_idle_percent", "uncertain"),
        (f"kafka:server:KafkaRequestHandlerPool:{HANDLERS}:Count", "count"),
    ],
)
def test_the_idle_time_is_recognized_under_all_of_its_names(series: str, meaning: str) -> None:
    assert read(series) == [("handler_idle_ns", meaning)]


@pytest.mark.parametrize(
    ("series", "reading"),
    [
        ("kafka_server_brokertopicmetrics_bytesinpersec_count", "bytes_in"),
        ("kafka_server_brokertopicmetrics_bytesin_total", "bytes_in"),
        ("kafka_server_brokertopicmetrics_bytesinpersec_oneminuterate", "bytes_in"),
        ("kafka_server_brokertopicmetrics_replicationbytesin_total", "replication_bytes_in"),
        ('kafka_network_requestmetrics_totaltimems{request="produce"}', "produce_total_ms_count"),
        ('kafka_network_requestmetrics_totaltimems_sum{request="Produce"}', "produce_total_ms_sum"),
        (
            'kafka_network_RequestMetrics_Mean{name="LocalTimeMs",request="FetchFollower"}',
            "fetch_follower_local_ms_mean",
        ),
        (
            f"{SOCKETS}_listener_SASL_SSL_networkprocessor_2_io_wait_time_ns_total",
            "network_wait_ns",
        ),
        (f'{SOCKETS}_io_waittime_total{{listener="A",networkProcessor="1"}}', "network_wait_ns"),
        (
            'kafka_server_socketservermetrics_incoming_byte{listener="A",network_processor="1"}',
            "network_in_bytes",
        ),
        ("kafka_server_raftmetrics_current_epoch", "controller_epoch"),
        ('java_lang_G1_Old_Generation_CollectionTime{type="GarbageCollector"}', "gc_ms"),
        ('java_lang_garbagecollector_collectiontime{name="G1 Old Generation"}', "gc_ms"),
        ("java_lang_memory_heapmemoryusage_used", "heap_used_bytes"),
        ('kafka_server_app_info_StartTimeMs{id="7"}', NODE_ID),
        ("kafka_controller_kafkacontroller_activecontrollercount", ACTIVE_CONTROLLER),
    ],
)
def test_other_readings_are_recognized(series: str, reading: str) -> None:
    assert [each for each, _ in read(series)] == [reading]


@pytest.mark.parametrize(
    "series",
    [
        'kafka_server_brokertopicmetrics_bytesin_total{topic="orders"}',
        'kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"}',
        'kafka_network_requestmetrics_totaltimems{request="Metadata"}',
        "kafka_network_requestmetrics_totaltimems",
        f"{POOL}_controlplanerequesthandleravgidlepercent_count",
        f"{SOCKETS}_io_wait_time_ns_avg",
        f'{SOCKETS}_io_wait_time_ns_total{{listener="A"}}',
        "kafka_server_replicamanager_partitioncount",
        "kafka_server_brokertopicmetrics_bytesin_mean",
        "kafka_connect_worker_metrics_task_count",
        "node_cpu_seconds_total",
        "kafka server",
        "",
    ],
)
def test_series_of_parts_of_other_beans_and_of_others_are_no_reading(series: str) -> None:
    assert read(series) == []


def test_a_label_that_all_series_have_is_no_part_of_a_bean() -> None:
    series = 'kafka_server_brokertopicmetrics_bytesin_total{env="prod"}'
    assert read(series) == []
    assert read(series, env="prod") == [("bytes_in", "uncertain")]
    assert read(series, env="test") == []


def test_the_selector_has_a_star_for_each_of_several_beans() -> None:
    (found,) = candidates_of(
        f"{SOCKETS}_listener_SASL_SSL_networkprocessor_12_io_wait_time_ns_total"
    )
    assert found.selector.text == (f"{SOCKETS}_listener_*_networkprocessor_*_io_wait_time_ns_total")
    (found,) = candidates_of(f'{SOCKETS}_incoming_byte{{networkProcessor="1",listener="A"}}')
    assert found.selector.text == f'{SOCKETS}_incoming_byte{{listener="*",networkProcessor="*"}}'


def test_every_reading_has_a_bean() -> None:
    named = {bean.reading for bean in BEANS}
    bases = {reading.removesuffix("_count").removesuffix("_mean") for reading in READINGS}
    assert bases - named == {PRODUCE_ERRORS}, "only rule sets name it"


def test_a_mean_and_a_count_of_a_histogram_are_different_readings() -> None:
    name = "kafka_log_logflushstats_logflushrateandtimems"
    assert read(f"{name}_mean") == [("log_flush_ms_mean", Meaning.MEAN.value)]
    assert read(f"{name}_count") == [("log_flush_ms_count", Meaning.COUNT.value)]
