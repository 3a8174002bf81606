from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Annotated, Any

import pyarrow as pa
import pytest

from metrics.arrow_schema import arrow_type, ddl, schema_of
from metrics.columns import (
    NO_COLUMN,
    Column,
    Flat,
    Moment,
    as_document,
    column,
    plain,
    restored,
    row_of,
    utc,
)
from metrics.sources.hosts.host_sample import HostSample
from metrics.sources.sample import BrokerSample
from metrics.tables.boundary import Boundary, BoundaryRow
from metrics.tables.rows import trial_from
from metrics.tables.schema import ROWS, SCHEMAS, HostRow, PartRow, RunRow, SampleRow
from metrics.traffic.clients import ConsumerOptions, ProducerOptions
from metrics.traffic.pattern import TopicOptions, TrafficPattern
from metrics.traffic.payload import Payload
from metrics.trial.adding import Histogram, ProducerSpan, Quantiles
from metrics.trial.client import BrokerAccount, ClientWindow, ProducerAccounts
from metrics.trial.consumption import GroupCounts, GroupWindow, ReadRange
from metrics.trial.evidence import Judgement, Reason
from metrics.trial.trial import Trial
from metrics.windows.use import Resource
from search.model import Verdict
from tests.support.evidence import client
from tests.support.headroom import headroom_row
from tests.support.nights import case_row
from tests.support.patterns import pattern
from tests.support.rows import BOUNDARY, OVERLOADED, traffic, trial


class Color(Enum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    ratio: float | None


@dataclass(frozen=True)
class Outer:
    name: Annotated[str, NO_COLUMN]
    color: Color | None
    inner: tuple[Inner, ...]
    counts: Mapping[int, int]


@dataclass(frozen=True)
class Part:
    low: float
    high: Annotated[float, Column("top")] = 9.0

    @column
    def width(self) -> float:
        return self.high - self.low


@dataclass(frozen=True)
class Marked:
    at_s: Annotated[float, Moment(), Column("at")]
    times: Histogram
    part: Annotated[Part, Flat("part_")]
    seen: datetime | None = None


@dataclass(frozen=True)
class Lists:
    values: tuple[float, ...]
    utilization: Mapping[str, float]


def through_arrow(record: Any, schema: pa.Schema) -> dict[str, Any]:
    """The row of a record after its way through a table."""
    table = pa.Table.from_pylist([row_of(record)], schema=schema)
    (back,) = table.to_pylist()
    return dict(back)


def test_annotations_become_columns() -> None:
    assert ddl(schema_of(Outer)) == (
        "`color` string, `inner` array<struct<`ratio`:double>>, `counts` map<bigint,bigint>"
    )
    assert ddl(schema_of(Marked)) == (
        "`at` timestamp, `times` string, `part_low` double, `top` double, `part_width` double, "
        "`seen` timestamp"
    )


def test_values_become_values_of_arrow() -> None:
    row = plain(Outer("a", Color.RED, (Inner(math.nan), Inner(0.5)), {3: 4}))
    assert row == {"color": "red", "inner": [{"ratio": None}, {"ratio": 0.5}], "counts": [(3, 4)]}
    table = pa.Table.from_pylist([row], schema=schema_of(Outer))
    assert table.to_pylist() == [row]


def test_marked_fields_have_their_column_form_and_come_back() -> None:
    east = timezone(timedelta(hours=2))
    seen = datetime(2026, 11, 22, 12, tzinfo=east)
    made = Marked(5.25, Histogram([3, 4]), Part(1.0, 4.0), seen)
    row = row_of(made)
    assert row["at"] == utc(5.25)
    assert row["times"] == Histogram([3, 4]).to_text()
    assert (row["part_low"], row["top"], row["part_width"]) == (1.0, 4.0, 3.0)
    assert restored(Marked, through_arrow(made, schema_of(Marked))) == made


def test_a_document_has_all_fields_under_the_names_of_their_columns() -> None:
    made = Outer("a", None, (Inner(0.5),), {3: 4})
    assert as_document(made) == asdict(made) | {"inner": [{"ratio": 0.5}]}
    nested = as_document(Marked(5.25, Histogram([3, 4]), Part(1.0, 4.0)))
    assert (nested["at"], nested["part"]) == (5.25, {"low": 1.0, "top": 4.0})
    row = row_of(RECORDS["boundaries"])
    assert as_document(BOUNDARY).keys() <= row.keys()
    assert row["overload_reasons"] == ["request_handler_idle: idle 0.1"]


def test_an_unknown_number_inside_a_list_or_map_comes_back_unknown() -> None:
    row = {"values": [1.0, None], "utilization": {"isr": None, "idle": 0.5}}
    back = restored(Lists, row)
    assert back.values[0] == 1.0
    assert math.isnan(back.values[1])
    assert math.isnan(back.utilization["isr"])
    assert back.utilization["idle"] == 0.5
    with pytest.raises(TypeError, match="is not a type of a column"):
        arrow_type(bytes)


NAMES = ("c", "w")
PART = pattern(3)
MIXED = PartRow(
    *("r", 1, "orders", 1.5, 3),
    PART.producer,
    PART.topic,
    PART.consumers,
    ClientWindow(1.0, 2.0),
    (Reason("achieved", "part orders: 60%", 0.6, 0.99),),
)
RECORDS: dict[str, Any] = {
    "runs": RunRow("r", "started", 5.0, *NAMES, "g", environment={"a": "b"}),
    "trials": trial(),
    "parts": MIXED,
    "samples": SampleRow("r", 1, BrokerSample(1, 5.5, {"bytes_in": 1.0})),
    "hosts": HostRow("r", 1, HostSample("broker-1", 5.5, {"cores": 8.0})),
    "boundaries": BoundaryRow("r", 5.0, *NAMES, BOUNDARY),
    "cases": case_row(),
    "headroom": headroom_row("r"),
}


@pytest.mark.parametrize("table", SCHEMAS)
def test_records_have_exactly_the_columns_and_fit(table: str) -> None:
    record, schema = RECORDS[table], SCHEMAS[table]
    row = row_of(record)
    assert list(row) == schema.names
    assert len(set(row)) == len(schema.names)
    back = through_arrow(record, schema)
    assert back == row
    assert table == "trials" or restored(ROWS[table], back) == record


def test_every_option_of_a_pattern_except_given_rates_has_a_column() -> None:
    of_producers = {field.name for field in fields(ProducerOptions)}
    of_payloads = {field.name for field in fields(Payload)}
    columns = dict.fromkeys(schema_of(TrafficPattern).names, "")
    assert of_producers - columns.keys() == {
        *("rate", "rate_bytes_per_s", "batch_size", "buffer_memory", "max_request_size")
    }
    assert {"batch_size_bytes", "buffer_memory_bytes", "max_request_bytes"} <= columns.keys()
    named = {name for name in of_payloads if f"payload_{name}" not in columns}
    assert named == {"kind", "sizes", "key_bytes", "headers"}
    assert {"payload", "message_sizes", "key_bytes", "headers"} <= columns.keys()
    assert {f"consumer_{field.name}" for field in fields(ConsumerOptions)} <= columns.keys()


def test_a_pattern_of_many_options_comes_back_from_its_row() -> None:
    made = traffic(
        9, 3_000, 12.5, axis="consumer_groups", load=3, point_message_bytes=3_000, acks="all",
        enable_idempotence=True, compression="zstd", arrivals="bursts", burst_off_s=2.0,
        kind="mixed", compressibility=0.25, sizes="uniform", size_spread=0.5, key_bytes=8,
        partitioner_ignore_keys=True, ramp_up_s=0.1,
        topic=TopicOptions(count=2, replication_factor=3, config={"min.insync.replicas": "2"}),
        consumers=ConsumerOptions(groups=3, client="librdkafka", start="earliest"),
    )  # fmt: skip
    back = through_arrow(made, schema_of(TrafficPattern))
    assert (back["payload"], back["message_sizes"], back["topics"]) == ("mixed", "uniform", 2)
    assert (back["consumer_groups"], back["client"]) == (3, "wire")
    assert restored(TrafficPattern, back) == made


GROUP = GroupWindow(
    GroupCounts(1, 2, 300, 4_000, (5, 6, 7), {"E": 8}, 9, 10, throttle_ms=11),
    Quantiles(1.0, 2.0, 3.0, 4.0, 5.0),
    records_total=400,
    reread_records=11,
    read_by_partition=(ReadRange(0, 5, 405, 400),),
)
WINDOW = client(
    errors_by_partition={0: {"E": 3, "F": 1}, 4: {"F": 2}},
    retried_by_partition={0: 5},
    retry_errors={"E": 5},
    duplicates_by_partition={0: 1},
    by_producer=ProducerAccounts({0: 9, 1: 9}, acked={0: 9, 1: 8}, failed={1: {"E": 1}}),
    by_broker={1: BrokerAccount(5, 0.5, 2, 90), 2: BrokerAccount()},
    compression_ratio=2.5,
    producer_share=ProducerSpan(0.9, 1.0, 1.1, 7),
    groups=(GROUP,),
    task_errors=("task 1 on b: it was too late",),
    latency_p999_ms=16.0,  # unknown, it would make no two records equal from Python 3.13 on
)


def kept(made: Trial) -> Trial:
    """A trial without the fields that its table does not have."""
    return replace(made, evidence=replace(made.evidence, end_offsets=None))


def test_a_trial_comes_back_with_its_counts_judgements_and_windows() -> None:
    reason = Reason("isr", "in 60% of the samples", 0.6, 0.5)
    judged = {
        "strict": Judgement(Verdict.OVERLOADED, (reason, reason)),
        "tolerant": Judgement(Verdict.SUSTAINED, ()),
    }
    made = trial(client=WINDOW, recovery_s=7.5, judgements=judged)
    row = through_arrow(made, SCHEMAS["trials"])
    assert (row["window_start"], row["window_end"]) == (utc(1_000_000), utc(1_000_010))
    assert (row["verdict"], row["recovery_s"]) == ("OVERLOADED", 7.5)
    verdicts = {goal: each["verdict"] for goal, each in dict(row["verdicts"]).items()}
    assert verdicts == {"strict": "OVERLOADED", "tolerant": "SUSTAINED"}
    assert [each["text"] for each in row["reasons"]] == [reason.text] * 2
    assert row["broker_windows"][0]["produce"]["local_ms"] == 1.0
    flat = {"start_s", "end_s", "counts", "latency", "producer_share", "host_samples", "quota"}
    flat |= {"parts", "is_part"}  # which have a table of their own
    assert {field.name for field in fields(ClientWindow)} - row.keys() == flat
    back = restored(Trial, row)
    assert back.evidence.client.counts.failed_by_partition == {0: 4, 4: 2}
    assert back.evidence.lag_growth_per_s == {"1": 970.0}
    assert back == kept(made)


def test_a_missing_column_has_its_default() -> None:
    row = through_arrow(trial(client=WINDOW), SCHEMAS["trials"])
    for name in ("groups", "by_producer", "latency_p999_ms", "producer_worst", "cpu_s", "topics"):
        del row[name]
    row |= dict.fromkeys(("retry_errors", "latency_max_ms", "task_errors", "axis", "load"))
    row["broker_windows"][0] |= {"handler_idle": None, "produce": None}
    del row["broker_windows"][0]["leader_partitions_min"]
    back = restored(Trial, row)
    window = back.evidence.client
    assert (window.groups, window.task_errors) == ((), ())
    assert window.counts == replace(WINDOW.counts, by_producer=ProducerAccounts(), retry_errors={})
    assert math.isnan(window.latency.p999_ms)
    assert math.isnan(window.latency.max_ms)
    assert window.producer_share == ProducerSpan(0.9, 1.0, 1.1)
    assert (back.pattern.axis, back.pattern.topic.count, back.load) == ("np", 1, 4)
    broker = back.evidence.brokers[0]
    assert (broker.handler_idle, broker.leader_partitions_min) == (None, None)
    assert broker.produce.local_ms is None


def test_an_unknown_value_without_a_default_is_none_nan_or_empty() -> None:
    unknown = dict.fromkeys(("value", "broker_id"))
    reason = restored(Reason, {"indicator": "isr", "text": "", "threshold": 0.5, **unknown})
    assert math.isnan(reason.value)
    assert reason.broker_id is None
    point = row_of(BOUNDARY) | {"overload_reasons": None, "np_overloaded": None}
    back = restored(Boundary, point)
    assert (back.overload_reasons, back.np_overloaded) == ((), None)
    with pytest.raises(ValueError, match="a row of Boundary has no bpm"):
        restored(Boundary, point | {"bpm": None})


def test_a_trial_of_the_first_version_has_one_judgement_without_a_goal() -> None:
    row = through_arrow(trial(client=WINDOW), SCHEMAS["trials"])
    assert trial_from(row) == kept(trial(client=WINDOW))
    late = ("verdicts", "groups", "errors_by_partition", "sent_by_partition", "by_producer")
    first = {name: value for name, value in row.items() if name not in late}
    absent: tuple[dict[str, Any], ...] = ({"verdicts": None}, {"verdicts": []}, {})
    for verdicts in absent:
        back = trial_from(first | verdicts)
        assert back.judgements == {"": OVERLOADED}
    assert (back.verdict, back.limited_by) == (Verdict.OVERLOADED, Resource.DISK)
    assert back.evidence.client.counts.acked_total == 12_000
    assert back.observation("").indicators == {"request_handler_idle": 1.125}
