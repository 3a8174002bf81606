"""The body of `redline learn`: surveys a cluster, and writes a workload, its evidence and a
profile.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from jobs.cluster.admin import AdminError
from jobs.cluster.opening import OpenCluster, open_cluster
from jobs.cluster.sources import open_metrics
from jobs.config import Cluster, load_cluster
from jobs.console.events import PhaseProgress, PhaseStarted, Reporter, Table, note, warn
from jobs.features.learn.reading import matching_topics
from jobs.features.learn.survey import Bounds, Survey, Surveyor
from metrics.common.errors import ConfigError, NoConclusionError
from metrics.features.learn.curve import profile_points
from metrics.features.learn.document import (
    COLUMNS,
    Learned,
    as_document,
    lost_by,
    span_words,
    table_row,
)
from metrics.features.learn.keys import LearnedPart, is_slow, learned_part
from metrics.features.learn.parts import MEAN, NOW, PEAK, PEAK_STEP_S, Figure, TopicPart, parts_of
from metrics.reporting.files import require_new, write_file, write_json_file, yaml_text
from metrics.sources.http_access import ScrapeError
from metrics.sources.source import History, KeepsHistory, steps_of
from metrics.units import format_counted, format_duration, format_some, format_volume, iso_utc

SPAN_S, STEP_S = 28 * 86_400.0, 3_600.0
"""Length of the history that is read, and the time between two points of this history [s]."""


def history_of(cluster: Cluster, opened: OpenCluster) -> tuple[dict[str, Any], str]:
    """The cluster's message rate over time, which the evidence file will contain, and the reason if
    this rate is unknown. The history and the reason are empty if the cluster's file names no
    Prometheus server.
    """
    if getattr(cluster.broker_source, "server", None) is None:
        return {}, ""
    try:
        with closing(open_metrics(cluster, opened, None)) as source:
            if not isinstance(source, KeepsHistory):
                return {}, ""
            now_s = time.time()
            found = source.history("messages_in", now_s - SPAN_S, now_s, STEP_S)
    except (ConfigError, ScrapeError) as error:
        return {}, f"the cluster's history is unknown: {error}"
    rates = rates_of(found)
    if not rates:
        return {}, "the Prometheus server has less than two hours of the brokers' metrics"
    past = {
        "step_s": STEP_S,
        "from": iso_utc(rates[0][0]),
        "mean_messages_per_s": round(fmean(rate for _, rate in rates), 3),
        "peak_messages_per_s": round(max(rate for _, rate in rates), 3),
        "messages_per_s": [[iso_utc(at_s), round(rate, 3)] for at_s, rate in rates],
    }
    return {"cluster_history": past}, ""


def rates_of(found: Mapping[int, History]) -> list[tuple[float, float]]:
    """Pairs (start of a step [s since the epoch], messages per second of all brokers), oldest
    first.

    A step is left out if a broker restarted or has no value in this step.
    """
    steps: dict[float, dict[int, float]] = {}
    for broker, values in found.items():
        for start_s, end_s, records in steps_of(values, STEP_S):
            steps.setdefault(start_s, {})[broker] = records / (end_s - start_s)
    return [
        (at_s, sum(rates.values()))
        for at_s, rates in sorted(steps.items())
        if len(rates) == len(found)
    ]


_COLUMN = 48
_STEPS_MIN = 12
"""A profile is written only if the curve has at least this many steps."""


def evidence_file(workload: Path) -> Path:
    """Path of the JSON file that contains the evidence for each figure. The file is in the
    workload's folder.
    """
    return workload.with_name(f"{workload.stem}.learned.json")


def profile_file(workload: Path) -> Path:
    """Path of the profile file, which has the curve for `redline traffic --profile`. The file is in
    the workload's folder.
    """
    return workload.with_name(f"{workload.stem}.profile.yaml")


def profile_text(learned: Learned) -> str | None:
    """The text of the profile file: the message rate over time; None if the learnt rate covers too
    short a time.
    """
    points = profile_points(learned.curve, learned.records_per_s)
    if len(points) <= _STEPS_MIN:
        return None
    begin = iso_utc(learned.curve.times_s[0])
    lines = [
        f"# The rate of {learned.cluster} over time from {begin} on; 1 means the rate at scale 1.",
        "# Written by redline learn.",
        f"description: learnt from {learned.cluster}",
        "points:",
        *(f"  - [{at_s:.6g}, {share:.4g}]" for at_s, share in points),
    ]
    return "\n".join(lines) + "\n"


def workload_text(learned: Learned, evidence: str) -> str:
    """The text of the workload file: one kind of traffic, or a mix of parts.

    Args:
        evidence: name of the evidence file.
    """
    top = CommentedMap()
    top["description"] = f"learnt from {learned.cluster} on {iso_utc(learned.at_s)[:10]}"
    if len(learned.parts) == 1:
        (only,) = learned.parts
        top["notes"] = [f"scale 1 is {only.producers.value:,} producers"]
        _fill(top, only)
    else:
        mix = CommentedMap()
        for each in learned.parts:
            own = mix[each.part.name] = CommentedMap()
            _put(own, "producers", each.producers)
            _fill(own, each, is_part=True)
        top["mix"] = mix
    top["trial"] = CommentedMap(learned.trial)
    head = [
        "Written by redline learn: the traffic of production, as a workload. Each line ends with",
        "the source of the line's figure (seen, fitted or assumed) and the range of this figure;",
        f"{evidence} has the evidence. Scale 1 is {_moment_words(learned)}.",
    ]
    if len(learned.parts) == 1:
        producers = learned.parts[0].producers
        head.append(
            f"Production has {producers.value:,} such producers ({_source(producers)}); a search "
            "finds how many of them the cluster sustains."
        )
    top.yaml_set_start_comment("\n".join(head))
    return yaml_text(top, width=1_000)


def _moment_words(learned: Learned) -> str:
    today = learned.curve.today
    span = span_words(today)
    peak = "the busiest hour of the last day"
    if today.step_s < PEAK_STEP_S:
        peak = f"the mean of {span}, because this time is too short for a peak"
    words = {
        PEAK: peak,
        MEAN: f"the mean of {span}",
        NOW: "the rate in the time range that was read",
    }
    moment = learned.moment if today.step_s else NOW
    return f"{words[moment]}: {learned.records_per_s:,.4g} messages/s"


def _fill(place: CommentedMap, learned: LearnedPart, *, is_part: bool = False) -> None:
    """Add the keys of a part to a map. A comment behind each value states the source of the value.

    Args:
        place: the map to which the keys are added.
        learned: the part whose keys are added.
        is_part: whether `place` describes one part of a mix. A part of a mix has one message size,
            whereas a workload without a mix has a list of message sizes.
    """
    for path, figure in learned.keys.items():
        *above, name = path.split(".", 2)  # the name of a topic's property contains dots
        inner = place
        for part in above:
            inner = inner.setdefault(part, CommentedMap())
        is_size = is_part and path == "message_bytes"
        _put(inner, name, replace(figure, value=figure.value[0]) if is_size else figure)


def _put(place: CommentedMap, key: str, figure: Figure) -> None:
    """Add a key and its value. A comment behind the value states the source of the value."""
    value = figure.value
    if isinstance(value, list):
        value = CommentedSeq(value)
        value.fa.set_flow_style()
    place[key] = value
    place.yaml_add_eol_comment(_source(figure), key, column=_COLUMN)


def _source(figure: Figure) -> str:
    """The source, the range and the evidence of a figure, in one line."""
    low, high = figure.low, figure.high
    span = ""
    if low is not None and high is not None and low < high:
        span = f", {low:,.4g} to {high:,.4g}"
    evidence = " ".join(figure.evidence.split())
    return f"{figure.source}{span}: {evidence}"


_LAG = "replica.lag.time.max.ms"
_NOTES_MAX = 12
_TOPICS_NAMED = 5


@dataclass(frozen=True)
class LearnOrder:
    """The options of one call of `redline learn`.

    Attributes:
        cluster: name or path of the cluster's file.
        topics: regular expressions. Each topic whose whole name matches an expression is learnt.
        out: path of the workload file to write.
        bounds: the bounds of the reading, such as its highest rate and its longest duration.
        moment: which rate of production becomes scale 1: "peak", "mean" or "now".
        parts_max: maximum number of parts of the mix.
        overrides: the `--set` options for the cluster.
        json_file: the file of `--json`, a copy of the evidence; None to write no copy.
        force: whether existing files are overwritten.
        dry_run: whether to show only the topics and the bounds, without reading.
    """

    cluster: str
    topics: tuple[str, ...]
    out: Path
    bounds: Bounds
    moment: str
    parts_max: int
    overrides: tuple[str, ...] = ()
    json_file: Path | None = None
    force: bool = False
    dry_run: bool = False


def learn(order: LearnOrder, reporter: Reporter) -> int:
    """Learn the traffic of topics, and write the workload.

    An interrupt while topics are read ends the reading. The data that was read before the interrupt
    is written, and then the interrupt is raised again.

    Raises:
        ConfigError: the cluster, the topics or the files are invalid, or this user may not read the
            topics.
        NoConclusionError: the topics have no records.
        TryLaterError: the cluster does not answer.
    """
    for file in (order.out, evidence_file(order.out), profile_file(order.out)):
        require_new("--out", file, is_forced=order.force)
    cluster = load_cluster(order.cluster, order.overrides)
    if cluster.starts_brokers:
        raise ConfigError(
            f"cluster {cluster.name} is a testbed that each run starts, so it has no production "
            "traffic; expected running brokers (bootstrap_servers); name their file with --cluster"
        )
    with ExitStack() as stack:
        opened = open_cluster(cluster, reporter, stack)
        topics = matching_topics(opened.admin, order.topics)
        bounds, count = order.bounds, format_counted(len(topics), "topic")
        note(
            reporter,
            f"the job reads at most {format_volume(bounds.bytes_max)} of recent data in "
            f"{format_duration(bounds.duration_s)} ({bounds.bytes_per_s / 1e6:g} MB/s) from "
            f"{count}; it joins no group, commits nothing, and keeps no content of a message",
        )
        if order.dry_run:
            return 0
        reporter.report(PhaseStarted(f"learning from {count}"))
        surveyor = Surveyor(
            opened.admin, topics, order.bounds, lambda text: reporter.report(PhaseProgress(text))
        )
        try:
            survey = surveyor.make()
        except AdminError as error:
            if "AuthorizationFailed" in error.cause:
                raise ConfigError(str(error)) from error
            raise
        if survey.was_interrupted and not survey.topics:
            raise KeyboardInterrupt  # without a batch there is nothing to write
        learned = _learned(order, cluster.name, survey, _lag_max_ms(opened))
        if not survey.was_interrupted:
            past, why_unknown = history_of(cluster, opened)
            notes = (*learned.notes, *filter(None, (why_unknown,)))
            learned = replace(learned, facts={**learned.facts, **past}, notes=notes)
    _write(order, learned, reporter)
    _show(learned, survey, order.out, reporter)
    if survey.was_interrupted:
        raise KeyboardInterrupt
    return 0


def _lag_max_ms(opened: OpenCluster) -> float | None:
    """The largest `replica.lag.time.max.ms` of three brokers [ms]; None if unknown."""
    found = []
    for broker in opened.info.broker_ids[:3]:
        try:
            value = opened.admin.broker_config(broker, (_LAG,)).get(_LAG)
        except AdminError:
            return None
        if value is not None and value.isdigit():
            found.append(float(value))
    return max(found, default=None)


def _learned(order: LearnOrder, cluster: str, survey: Survey, lag_max_ms: float | None) -> Learned:
    """The workload that the survey shows, with its evidence.

    Raises:
        ConfigError: this user may not read any of the topics.
        NoConclusionError: the topics have no records.
    """
    refused, idle = (format_some(each, _TOPICS_NAMED) for each in (survey.refused, survey.idle))
    if not survey.topics and refused:
        raise ConfigError(
            f"this user may not read {refused} (TopicAuthorizationFailedError); expected the ACL "
            "Read on the topics (no ACL on groups is needed); grant it, or choose other topics"
        )
    if not survey.topics:
        raise NoConclusionError(
            f"{format_counted(len(survey.idle), 'topic')} without a record in the last hour: "
            f"{idle}; expected topics with recent records; choose other topics with --topics, or "
            "learn while producers send"
        )
    topics = [TopicPart.of(each, order.moment) for each in survey.topics]
    every = parts_of(topics, order.parts_max)
    parts = [each for each in every if not is_slow(each)] or list(every[:1])
    learned = tuple(learned_part(part, survey.brokers) for part in parts)
    notes = [*survey.notes, *lost_by(parts)]
    slow = [topic.name for part in every if part not in parts for topic in part.topics]
    if slow:
        shown = format_some(slow, _TOPICS_NAMED)
        notes.append(
            f"topics are left out, because a trial of some minutes needs more messages: {shown}"
        )
    if refused:
        notes.append(f"topics are left out, because this user may not read them: {refused}")
    if idle:
        notes.append(f"topics are left out, because they have no record in the last hour: {idle}")
    if survey.throttled_s > 0:
        notes.append(f"a quota of the brokers throttled the reading for {survey.throttled_s:.1f} s")
    facts = {
        "bytes": survey.bytes_read,
        "seconds": round(survey.took_s, 1),
        "throttled_s": round(survey.throttled_s, 3),
        "brokers": survey.brokers,
        "interrupted": survey.was_interrupted,
        "decoded": order.bounds.decodes,
    }
    return Learned(cluster, time.time(), order.moment, learned, facts, tuple(notes), lag_max_ms)


def _write(order: LearnOrder, learned: Learned, reporter: Reporter) -> None:
    evidence = evidence_file(order.out)
    write_file("--out", order.out, workload_text(learned, evidence.name))
    document = as_document(learned)
    text = json.dumps(document, indent=1, ensure_ascii=False)
    write_file("--out", evidence, text + "\n")
    written = [order.out, evidence]
    profile = profile_text(learned)
    if profile is not None:
        write_file("--out", profile_file(order.out), profile)
        written.append(profile_file(order.out))
    write_json_file(order.json_file, document)
    for file in written:
        note(reporter, f"written: {file}")


def _show(learned: Learned, survey: Survey, out: Path, reporter: Reporter) -> None:
    reporter.report(
        Table(
            f"Traffic of {learned.cluster} at scale 1",
            COLUMNS,
            tuple(map(table_row, learned.parts)),
        )
    )
    today = learned.curve.today
    if today.step_s:
        note(
            reporter,
            f"the last {span_words(today)}: mean {today.mean:,.4g} messages/s, peak "
            f"{today.peak:,.4g}; the curve covers {span_words(learned.curve)}",
        )
    note(reporter, f"read {format_volume(survey.bytes_read)} in {format_duration(survey.took_s)}")
    for text in learned.notes[:_NOTES_MAX]:
        note(reporter, text)
    if len(learned.notes) > _NOTES_MAX:
        note(reporter, f"{len(learned.notes) - _NOTES_MAX} more notes are in the evidence")
    note(reporter, f"next: redline find-limit --cluster FILE --workload {out} --dry-run")
    if survey.was_interrupted:
        warn(
            reporter,
            "interrupted; the data that was read before the interrupt is written, but "
            "curves may be missing",
        )
