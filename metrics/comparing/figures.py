"""Figures of measured cases: how one is named, shown and compared, and the record of a sweep."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from metrics.columns import Column, restored
from metrics.common.errors import ConfigError
from metrics.tables.boundary import Boundary
from metrics.units import UNKNOWN


@dataclass(frozen=True)
class FigureKind:
    """The kind of a figure, without its unit.

    Attributes:
        word: its name, such as `limit`.
        less_is_better: True if a smaller figure is better, as for a time.
        heading: the word before the unit in the heading of its column; empty for none.
        interval_heading: the heading of its interval.
        columns: heading of each further column → the reading of a result that it shows.
    """

    word: str
    less_is_better: bool = False
    heading: str = ""
    interval_heading: str = "at 90 %"
    columns: Mapping[str, str] = field(default_factory=dict)


LIMIT = FigureKind("limit", heading="limit")
ACKNOWLEDGED = FigureKind(
    "acknowledged",
    columns={
        "CPU-s/MB": "cpu_s_per_mb",
        "broker CPU-s/MB": "broker_cpu_s_per_mb",
        "log B/B": "log_bytes_per_byte",
    },
)
TIME = FigureKind("time", less_is_better=True)

CASE = "case"
"""The only axis of an experiment whose cases have names; it stands for the keys that they set."""


BROKERS_KEY = "cluster.testbed.brokers"
"""Full path of the number of brokers that a run starts."""
PROPERTIES_PREFIX = "cluster.testbed.properties."
"""Full path of the brokers' properties, before the name of one."""
_WORDS = {"workload.np": "producers", "workload.message_bytes": "bytes per message"}


@dataclass(frozen=True)
class Result:
    """The figure of one case in one repeat, at one message size.

    Attributes:
        settings: full path of each key that varies → its value.
        repeat: number of the repeat, from 1.
        message_bytes: message size [B].
        value: the figure; None if the case has no answer [MB/s].
        low, high: ends of the figure's 90 % interval; None if it is not known [MB/s].
        p50_ms, p99_ms, p999_ms: latencies at the figure.
        limited_by: the resource that bound the brokers, or None.
        why: reason why there is no answer; empty if there is one.
        brokers: number of brokers; 0 if it is not known.
        run_id: id of the case's run.
        cpu_s_per_mb: CPU time of the producers per MB of payload, at a fixed load [CPU-s/MB].
        broker_cpu_s_per_mb: CPU time of all brokers per MB of payload [CPU-s/MB].
        commit_ms: mean duration of a commit, at a fixed load with transactions.
        log_bytes_per_byte: bytes of record batches per byte of payload, at a fixed load [ratio].
        broker_resident_bytes, page_cache_bytes: highest memory of a broker's process, and of a
            host's page cache, at the figure; None if the hosts do not report it [B].
        readings: further readings of a measurement, by their names.
    """

    settings: Mapping[str, str]
    repeat: int
    message_bytes: Annotated[int, Column("bpm")]
    value: float | None
    low: float | None = None
    high: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    limited_by: str | None = None
    why: str = ""
    brokers: int = 0
    run_id: str = ""
    cpu_s_per_mb: float | None = None
    log_bytes_per_byte: float | None = None
    broker_resident_bytes: float | None = None
    page_cache_bytes: float | None = None
    broker_cpu_s_per_mb: float | None = None
    commit_ms: float | None = None
    readings: Mapping[str, float] = field(default_factory=dict)

    def reading(self, name: str) -> float | None:
        """A reading by the name of its attribute, or of `readings`; None if it is not known."""
        found: float | None = getattr(self, name, None)
        return self.readings.get(name) if found is None else found

    @property
    def has_interval(self) -> bool:
        """True if the interval of the figure is known."""
        return bool(self.low and self.high)

    @property
    def estimate(self) -> float | None:
        """The geometric middle of the interval, or the figure if no interval is known.

        A limit's figure is the highest sustained load, which can lie anywhere in a bracket that
        may be 15 % wide; the middle of the interval is the better estimate.
        """
        if self.value and self.low and self.high:
            return math.sqrt(self.low * self.high)
        return self.value


@dataclass(frozen=True)
class SweepRecord:
    """A sweep and its figures, as sweep.json has them.

    Attributes:
        sweep_id: name of the sweep and of its folder.
        started_at, finished_at: ISO 8601, UTC.
        status, exit_code, error, caveat: as in a run's summary.
        experiment: name of the experiment.
        description, published: its question, and the result of a published study.
        asks: the name of the measurement of each case.
        unit: unit of the figures.
        kind: how the figures are named and compared.
        axes: full path of each key that varies → its values; the first value is the reference.
        repeats: planned number of measurements per case.
        results: figures in the order of the experiment's cases.
        named: settings of cases that have names: name → full path → value.
    """

    sweep_id: str
    started_at: str
    finished_at: str
    status: str
    exit_code: int
    error: str | None
    caveat: str
    experiment: str
    description: str
    published: str
    asks: str
    unit: str
    kind: FigureKind
    axes: Mapping[str, tuple[str, ...]]
    repeats: int
    results: tuple[Result, ...]
    named: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def figure(self) -> str:
        """The name of the figure, with its unit."""
        return f"{self.kind.word} [{self.unit}]"


def load_sweep(path: Path) -> SweepRecord:
    """Read sweep.json; keys that a newer version added are ignored.

    Raises:
        ConfigError: the file is missing or is not the answer of a sweep.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        document.setdefault("named", {})  # older versions wrote neither it nor the kind
        names = {each.name for each in fields(SweepRecord)} - {"kind"}
        own = {name: document[name] for name in names}
        results = tuple(restored(Result, each) for each in document["results"])
        own["axes"] = {path: tuple(values) for path, values in document["axes"].items()}
        older = {"limit": LIMIT, "load": ACKNOWLEDGED}.get(document["asks"], TIME)
        kind = restored(FigureKind, document["kind"]) if "kind" in document else older
        return SweepRecord(**own | {"results": results, "kind": kind})
    except (*(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError),) as error:
        raise ConfigError(
            f"{path} is not the answer of a sweep ({type(error).__name__}: {error}); expected "
            "OUT/SWEEP_ID/sweep.json as redline sweep writes it"
        ) from error


def middle(values: Iterable[float | None]) -> float | None:
    """The median of the known, finite values; None without any."""
    known = [each for each in values if each is not None and math.isfinite(each)]
    return median(known) if known else None


def short(path: str) -> str:
    """A short name of a key: a word, Kafka's name of the property, or the last part of the path."""
    if path in _WORDS:
        return _WORDS[path]
    name = path.removeprefix(PROPERTIES_PREFIX)
    return name if name != path else path.rsplit(".", 1)[-1]


def figure(value: float | None) -> str:
    """A figure without its unit, with three digits or as a whole number."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def setting_text(value: Any) -> str:
    """The value of a setting as a result has it."""
    return value if isinstance(value, str) else json.dumps(value)


def case_words(settings: Mapping[str, Any]) -> str:
    """The name of a case, or its settings on one line: `acks all, num.io.threads 2`."""
    return ", ".join(
        value if path == CASE else f"{short(path)} {value}" for path, value in settings.items()
    )


def limit_result(boundary: Boundary) -> Result:
    """The figure of a limit, without the settings of its case."""
    pays = boundary.along.grows_payload
    low, _ = boundary.loads
    value = boundary.mb_per_s if pays else float(low)
    why = boundary.gave_up or ("" if value else "no load was sustained")
    return Result(
        {},
        1,
        boundary.message_bytes,
        None if why else value,
        boundary.mb_per_s_low if pays else boundary.load_low,
        boundary.mb_per_s_high if pays else boundary.load_high,
        *boundary.latencies_ms,
        limited_by=boundary.limited_by,
        why=why,
        broker_resident_bytes=boundary.broker_resident_bytes,
        page_cache_bytes=boundary.page_cache_bytes,
    )
