"""The body of `redline headroom`: today's traffic, the limit, the answer, and the growth."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.cluster.opening import OpenCluster, open_cluster
from jobs.cluster.sources import open_hosts, open_metrics, require_sources
from jobs.config import Cluster, load_cluster, load_goal
from jobs.console.events import PhaseStarted, Reporter, Table, note, warn
from jobs.console.printing import make_reporter
from jobs.runs.context_factory import open_spark
from jobs.runs.recorded_runs import read_rows
from jobs.trials.sampling import LoadSampler
from metrics.columns import as_document
from metrics.common.errors import ConfigError, HeadroomError, NoConclusionError
from metrics.features.headroom.answer import (
    COLUMNS,
    Answer,
    answer_words,
    hold_against_run,
    hold_against_thresholds,
    table_rows,
    times_words,
)
from metrics.features.headroom.growth import (
    DAY_S,
    Growth,
    NoForecastLibraryError,
    growth_of,
    growth_words,
    short_history_words,
)
from metrics.features.headroom.limits import (
    RATIO,
    RunLimit,
    Today,
    Windows,
    answers_of,
    run_limit,
    today_of,
)
from metrics.judging.thresholds import Indicators
from metrics.reporting.files import write_json_file
from metrics.reporting.summary import RunSummary
from metrics.reporting.summary_tables import configuration_of_row, summary_of
from metrics.sources.hosts.host_sample import HostSource
from metrics.sources.http_access import ScrapeError
from metrics.sources.sample import BrokerSample
from metrics.sources.server.prometheus_server import PrometheusServerSource
from metrics.sources.shortcomings import is_blind
from metrics.sources.source import MetricsSource, brokers_of, sample_interval_of
from metrics.tables.rows import HeadroomRow
from metrics.tables.store import TableStore
from metrics.units import format_duration, format_mb_per_s, iso_utc
from metrics.windows.broker import broker_windows
from metrics.windows.use import Resource
from search.model import LEVEL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE_INTERVAL_S = 1.0
"""Time between two samples of a cluster that is watched live [s]."""
STEP_S, STEP_SCRAPES = 300.0, 4
"""Time between two samples of the past [s], and the minimum number of scrapes in this time."""
HISTORY_S, HISTORY_STEP_S = 56 * 86_400.0, 3_600.0
"""Length of the history that shows the growth, and the step of this history [s]."""

History = list[tuple[float, float]]
"""Pairs (time [s since the epoch], share of the limit in use [ratio])."""


@dataclass(frozen=True)
class Production:
    """The production traffic of a cluster to which redline is connected, read from the cluster's
    metrics.

    Attributes:
        hosts: the metrics of the brokers' hosts.
        link_mbit_per_s: stated speed of the brokers' network interfaces [Mbit/s]; None if not
            stated.
    """

    opened: OpenCluster
    source: MetricsSource
    hosts: HostSource
    link_mbit_per_s: float | None = None

    @property
    def server(self) -> PrometheusServerSource | None:
        """The Prometheus server with the brokers' history; None if the metrics have
        another source.
        """
        return self.source if isinstance(self.source, PrometheusServerSource) else None

    def watched(
        self,
        window_s: float,
        wait: Callable[[float], object] = time.sleep,
        every_s: float = SAMPLE_INTERVAL_S,
    ) -> Today:
        """Today's traffic, from samples that are taken during the next `window_s` seconds.

        Args:
            wait: function that waits for a number of seconds.
            every_s: interval of the samples [s]. A source whose own interval is longer than
                `every_s` keeps its own interval.

        Raises:
            NoConclusionError: the brokers returned too few samples.
        """
        source, hosts = self.source, self.hosts
        interval_s = sample_interval_of(source, every_s)
        with LoadSampler(source, interval_s, hosts) as sampler:
            start_s = time.time()
            wait(window_s)
            end_s = time.time()
            sampler.wait_past(end_s, 2 * interval_s + 5.0)
            samples = sampler.stop()
        today = today_of(
            source.name,
            samples.nodes,
            samples.hosts,
            sorted(brokers_of(source)),
            hosts.brokers,
            (start_s, end_s, interval_s),
            self.link_mbit_per_s,
            self.opened.info.hosts,
        )
        _require_samples(today, samples.nodes, interval_s)
        return today

    def busiest_of_past(self, now_s: float, back_s: float) -> Today | None:
        """The busiest step of the past; None if no server has metrics of this time.

        Raises:
            NoConclusionError: the server does not answer.
        """
        step_s = max(STEP_S, STEP_SCRAPES * sample_interval_of(self.source, 0.0))
        parts = self.past(now_s - back_s, now_s, step_s)
        if not parts:
            return None
        at, busiest = max(enumerate(parts), key=lambda each: _busy(each[1]))
        beside = [each.whole for each in parts[max(0, at - 1) : at + 2]]
        note = (
            f"today's traffic is the traffic of the busiest {format_duration(step_s)} in the last "
            f"{format_duration(back_s)}, from {iso_utc(busiest.start_s)} on"
        )
        return replace(busiest, parts=beside if len(beside) > 1 else (), note=note)

    def past(self, start_s: float, end_s: float, step_s: float) -> list[Today]:
        """The traffic of each past step in which all brokers have samples; empty without a server.

        Raises:
            NoConclusionError: the server does not answer.
        """
        if self.server is None:
            return []
        try:
            samples = self.server.past_samples(start_s, end_s, step_s)
        except ScrapeError as error:
            raise NoConclusionError(
                f"the history of the brokers cannot be read: {error}; expected an answer from the "
                "Prometheus server; try again, or use another source of metrics"
            ) from error
        by_time: dict[float, list[BrokerSample]] = {}
        for each in samples:
            by_time.setdefault(each.at_s, []).append(each)
        found = []
        brokers, machines = sorted(brokers_of(self.server)), self.opened.info.hosts
        for from_s, to_s in pairwise(sorted(by_time)):
            if to_s - from_s > 1.5 * step_s:
                continue
            both = [*by_time[from_s], *by_time[to_s]]
            windows = broker_windows(both, brokers, from_s, to_s, step_s, self.link_mbit_per_s)
            if all(each.start_s is not None and each.contradiction is None for each in windows):
                whole = Windows(windows)
                found.append(Today(self.server.name, from_s, to_s, whole, machines=machines))
        return found


def _require_samples(today: Today, samples: Sequence[BrokerSample], interval_s: float) -> None:
    for window in today.whole.brokers:
        if window.start_s is not None and window.contradiction is None:
            continue
        own = [each.error for each in samples if each.broker_id == window.broker_id and each.error]
        why = window.contradiction or (own[-1] if own else "no sample in the window")
        raise NoConclusionError(
            f"broker {window.broker_id} has no complete window of "
            f"{format_duration(today.end_s - today.start_s)} ({why}); expected at least two "
            f"samples, one every {interval_s:g} s; watch for a longer time with --window"
        )


def _busy(today: Today) -> tuple[float, float]:
    """A sort key: the highest use of request handlers on any broker, and then the rate at which all
    brokers receive bytes.
    """
    used = today.loads(Indicators())
    key = (Resource.REQUEST_HANDLERS, RATIO)
    busy = max((each[key].used for each in used.values() if key in each), default=0.0)
    return busy, sum(each.bytes_in_per_s or 0.0 for each in today.whole.brokers)


NO_LIBRARY = (
    "the date cannot be forecast: statsmodels is not installed; install it with pip install "
    "'kafka-redline[forecast]'"
)


def of_tables(rows: Sequence[HeadroomRow], *, is_estimate: bool) -> History:
    """The share of the limit that was used at earlier times, from the table rows that earlier calls
    of `redline headroom` added. Rows with another `is_estimate` are ignored, because an estimate
    and the limit of a run are not comparable.
    """
    return [
        (row.at_s, 1.0 / row.headroom.times)
        for row in rows
        if row.headroom.times and row.is_estimate == is_estimate
    ]


def of_source(production: Production, answer: Answer, today: Today, limits: Indicators) -> History:
    """The history of the resource that is exhausted first, from a Prometheus server. The history
    shows which share of the resource's limit was in use.

    The history is empty if the metrics do not come from a Prometheus server. The history is also
    empty if the use of the resource is measured in bytes.

    Raises:
        NoConclusionError: the server does not answer.
    """
    first = answer.first
    if first.unit != RATIO:
        return []

    history = []
    for past in production.past(today.end_s - HISTORY_S, today.end_s, HISTORY_STEP_S):
        load = past.loads(limits).get(first.broker_id, {}).get((Resource(first.resource), RATIO))
        free = first.limit - first.at_rest
        if load is not None and free > 0 and load.used > first.at_rest:
            share = (load.used - first.at_rest) / free
            history.append(((past.start_s + past.end_s) / 2, share))
    return history


def continued(history: History, answer: Answer, at_s: float) -> tuple[Growth | None, str]:
    """The growth that a history and today's answer show, and a sentence about this growth."""
    whole = [*history, (at_s, 1.0 / answer.times)] if answer.times > 0 else list(history)
    days = {int(each // DAY_S) for each, _ in whole}
    low, high = answer.times_low / answer.times, answer.times_high / answer.times
    try:
        growth = growth_of(whole, low, high)
    except NoForecastLibraryError:
        return None, NO_LIBRARY
    if growth is None:
        return None, short_history_words(len(days))
    return growth, growth_words(growth, at_s)


WINDOW_S, PAST_S = 60.0, DAY_S
"""Default time for which a cluster is watched, and default length of the history from a Prometheus
server [s].
"""


@dataclass(frozen=True)
class HeadroomOrder:
    """The options of one call of `redline headroom`.

    Attributes:
        cluster: name or path of the cluster's file.
        overrides: `--set` options for the cluster's file.
        out: the folder of all runs.
        tables: path or catalog schema of the Delta tables; None for the default folder in `out`.
        run_id: the run that measured the limit; None for an estimate by thresholds.
        goal: the goal of the run or of the estimate. None means the only goal of the run, or the
            default goal for an estimate.
        window_s: time to watch the cluster, or time to read from a Prometheus server [s]; None for
            the default.
        fail_below: minimum number of times that today's traffic must fit into the limit; None for
            no minimum.
        json_file: the file for the answer as JSON; None to write no file.
    """

    cluster: str
    overrides: tuple[str, ...]
    out: Path
    tables: str | None = None
    run_id: str | None = None
    goal: str | None = None
    window_s: float | None = None
    fail_below: float | None = None
    json_file: Path | None = None

    @property
    def tables_or_default(self) -> str:
        """The place of the Delta tables."""
        return self.tables or str(self.out.absolute() / "tables")


@dataclass(frozen=True)
class _KnownLimit:
    """The limit of a run, read from the tables; without a run, only the thresholds of a goal."""

    goal: str
    limits: Indicators
    points: tuple[RunLimit, ...] = ()


def show_headroom(order: HeadroomOrder) -> int:
    """Compute the headroom, append the answer to the tables, and return the exit code.

    Raises:
        ConfigError: the run is unknown or measured another cluster, or the brokers have no metrics.
        NoConclusionError: the run has no limit, or the cluster is idle.
        HeadroomError: the headroom is less than `fail_below`.
        TryLaterError: no broker answers.
    """
    cluster = load_cluster(order.cluster, order.overrides)
    if cluster.starts_brokers:
        raise ConfigError(
            f"cluster {cluster.name} is a testbed that each run starts, so it has no production "
            "traffic; expected running brokers (bootstrap_servers); name their file with --cluster"
        )
    if order.run_id is not None and order.tables is None and not (order.out / "tables").is_dir():
        raise ConfigError(
            f"{order.out / 'tables'} does not exist; expected the tables of the run "
            f"{order.run_id}; name their place with --out or --tables"
        )
    with make_reporter() as reporter, ExitStack() as stack:
        opened = open_cluster(cluster, reporter, stack)
        require_sources(cluster, opened)
        reporter.report(PhaseStarted("starting Spark, and reading the Delta tables"))
        spark = open_spark(stack)
        store = TableStore(spark, order.tables_or_default)
        known = _known_limit(order, store, cluster, opened)
        production = _open_sources(cluster, opened, spark, stack)
        today = _today(order, production, reporter)
        answer = _answer(known, today, order.run_id)
        store.open()
        stack.callback(store.close)
        earlier = []
        try:
            earlier = of_source(production, answer, today, known.limits)
        except NoConclusionError as error:  # the answer for today needs no history
            warn(reporter, str(error))
        if not earlier:
            calls = store.headroom(opened.info.cluster_id)
            earlier = of_tables(calls, is_estimate=answer.is_estimate)
        growth, sentence = continued(earlier, answer, today.end_s)
        rows = rows_of(answer, today, growth, order, known.goal, (cluster.name, opened))
        _show(reporter, cluster.name, answer, today, sentence)
        write_json_file(order.json_file, document(rows, answer, growth, order.fail_below))
        store.append_headroom(rows)
        store.settle()
    if order.fail_below is not None and answer.times < order.fail_below:
        raise HeadroomError(
            f"{answer_words(answer)}; expected at least {order.fail_below:g} times (--fail-below); "
            "add brokers, move load to another cluster, or accept less headroom"
        )
    return 0


def _open_sources(
    cluster: Cluster, opened: OpenCluster, spark: SparkSession, stack: ExitStack
) -> Production:
    source = open_metrics(cluster, opened, getattr(spark, "_jvm", None))
    stack.callback(source.close)
    if is_blind(source.nodes):
        raise ConfigError(
            f"cluster {cluster.name} has no metrics of its brokers, and headroom is computed from "
            "metrics; expected jmx or metrics in the cluster's file; add one of them (redline init "
            "asks for them)"
        )
    hosts = open_hosts(cluster, opened)
    stack.callback(hosts.close)
    return Production(opened, source, hosts, cluster.link_mbit_per_s)


def _known_limit(
    order: HeadroomOrder, store: TableStore, cluster: Cluster, opened: OpenCluster
) -> _KnownLimit:
    if order.run_id is None:
        goal = load_goal(order.goal or "default")
        return _KnownLimit(goal.name, goal.thresholds.indicators)
    runs, boundaries, trials = read_rows(store, order.run_id)
    summary = summary_of(runs, boundaries)
    require_same_cluster(summary, cluster, opened)
    points = answers_of(summary.boundaries, order.run_id, order.goal)
    goal_name = points[0].goal
    limits = indicators_of(configuration_of_row(runs[-1]), goal_name)
    found = tuple(run_limit(each, trials, limits, opened.info.hosts) for each in points)
    return _KnownLimit(goal_name, limits, found)


def require_same_cluster(run: RunSummary, cluster: Cluster, opened: OpenCluster) -> None:
    """Require that a run measured this cluster. Clusters are compared by id, or by name if an id is
    unknown.

    Raises:
        ConfigError: the run measured another cluster.
    """
    then, now = run.environment.get("cluster.id", ""), opened.info.cluster_id
    if not (then == now if then and now else run.cluster == cluster.name):
        raise ConfigError(
            f"run {run.run_id} measured the cluster {run.cluster} (id {then or 'unknown'}), and "
            f"--cluster is {cluster.name} (id {now or 'unknown'}); expected a run of the same "
            "brokers; name a run of this cluster, or omit --run for an estimate"
        )


def indicators_of(settings: Mapping[str, Mapping[str, Any]], goal: str) -> Indicators:
    """The thresholds of a goal, from the recorded configuration of a run. A threshold that the
    configuration does not contain has its default value.

    Args:
        settings: the sections of the recorded configuration, from `configuration_of_row`.
    """
    own = settings.get(f"goal {goal}", settings.get("goal", {}))
    names = {f"indicators.{each.name}": each.name for each in fields(Indicators)}
    return Indicators(**{names[key]: value for key, value in own.items() if key in names})


def _today(order: HeadroomOrder, production: Production, reporter: Reporter) -> Today:
    """Today's traffic, from the history of a Prometheus server or from live samples.

    Raises:
        NoConclusionError: the cluster is idle, or returned too few samples.
    """
    today = None
    if production.server is not None:
        past_s = order.window_s or PAST_S
        reporter.report(PhaseStarted(f"reading the last {format_duration(past_s)} of the server"))
        today = production.busiest_of_past(time.time(), past_s)
    if today is None:
        window_s = order.window_s or WINDOW_S
        reporter.report(PhaseStarted(f"watching the brokers for {format_duration(window_s)}"))
        today = production.watched(window_s)
    if today.is_idle:
        raise NoConclusionError(_idle_words(today))
    return today


def _idle_words(today: Today) -> str:
    taken = format_mb_per_s((today.bytes_in_per_s or 0.0) / 1e6)
    return (
        f"the cluster is idle: its brokers received {taken} MB/s in the window; expected "
        "production traffic to compare with a limit; call this job while producers write, or watch "
        "for a longer time with --window"
    )


def _answer(known: _KnownLimit, today: Today, run_id: str | None) -> Answer:
    answer = (
        hold_against_thresholds(today, known.limits)
        if run_id is None
        else hold_against_run(today, known.points, known.limits)
    )
    if answer is None:
        raise NoConclusionError(_idle_words(today))
    return answer


def rows_of(
    answer: Answer,
    today: Today,
    growth: Growth | None,
    order: HeadroomOrder,
    goal: str,
    where: tuple[str, OpenCluster],
) -> list[HeadroomRow]:
    """The rows of an answer for the table `headroom`. The first row has the answer for the whole
    cluster.

    Args:
        goal: name of the goal to which the limit belongs.
        where: the name of the cluster, and the connection to the cluster.
    """
    name, opened = where
    windows = {each.broker_id: each for each in today.whole.brokers}
    call = f"{iso_utc(today.end_s)}-{secrets.token_hex(2)}"

    made = [
        HeadroomRow(
            run_id=order.run_id,
            headroom_id=call,
            at_s=today.end_s,
            cluster=name,
            cluster_id=opened.info.cluster_id,
            goal=goal,
            source=today.source,
            window_s=today.end_s - today.start_s,
            headroom=row,
            is_first=row is answer.first,
            is_estimate=answer.is_estimate,
            messages_in_per_s=windows[row.broker_id].messages_in_per_s,
            bytes_in_per_s=windows[row.broker_id].bytes_in_per_s,
            assumption=answer.assumption,
        )
        for row in answer.rows
    ]
    if growth is not None:
        ends = (growth.days, growth.days_low, growth.days_high)
        at_s, low_s, high_s = (
            None if days is None else today.end_s + days * DAY_S for days in ends
        )
        made[0] = replace(
            made[0],
            growth_per_day=growth.per_day,
            full_at_s=at_s,
            full_low_at_s=low_s,
            full_high_at_s=high_s,
        )
    return made


def document(
    rows: list[HeadroomRow], answer: Answer, growth: Growth | None, fail_below: float | None
) -> dict[str, Any]:
    """The answer as a JSON document, as docs/headroom.md describes it."""
    first = rows[0]
    return {
        "headroom_id": first.headroom_id,
        "at": iso_utc(first.at_s),
        "cluster": first.cluster,
        "cluster_id": first.cluster_id,
        "run_id": first.run_id,
        "goal": first.goal,
        "source": first.source,
        "window_s": first.window_s,
        **as_document(answer),
        "level": LEVEL,
        "first": as_document(answer.first),
        "growth": None if growth is None else as_document(growth),
        "fail_below": fail_below,
        "is_enough": fail_below is None or answer.times >= fail_below,
    }


def _show(reporter: Reporter, cluster: str, answer: Answer, today: Today, growth: str) -> None:
    title = f"Headroom of {cluster}: {times_words(answer.times)} times today's traffic"
    reporter.report(Table(title, COLUMNS, table_rows(answer)))
    note(reporter, answer_words(answer))
    note(reporter, f"assumption: {answer.assumption}")
    if today.note:
        note(reporter, today.note)
    for each in answer.notes:
        warn(reporter, each)
    note(reporter, growth)
