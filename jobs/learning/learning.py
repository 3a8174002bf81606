"""The body of `redline learn`: the survey of a cluster, and the files of what it shows."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.cluster.admin import AdminError
from jobs.cluster.opening import OpenCluster, open_cluster
from jobs.config import load_cluster
from jobs.console.events import PhaseProgress, PhaseStarted, Reporter, Table, note, warn
from jobs.learning.files import (
    evidence_file,
    evidence_text,
    profile_file,
    profile_text,
    workload_text,
)
from jobs.learning.history import history_of
from jobs.learning.survey import Bounds, Survey, Surveyor
from jobs.learning.topics import matching_topics
from metrics.common.errors import ConfigError, NoConclusionError
from metrics.learning.document import (
    COLUMNS,
    Learned,
    LearnedPart,
    as_document,
    lost_by,
    span_words,
    table_rows,
)
from metrics.learning.keys import is_slow, keys_of
from metrics.learning.parts import TopicPart, parts_of
from metrics.learning.topic import TopicFacts
from metrics.reporting.files import require_new, write_file
from metrics.units import format_duration, format_volume

_LAG = "replica.lag.time.max.ms"
_NOTES_MAX = 12


@dataclass(frozen=True)
class LearnOrder:
    """What to learn, and where to write it.

    Attributes:
        cluster: name or path of the cluster's file.
        topics: regular expressions; a topic whose whole name matches one is learnt.
        out: the workload to write.
        bounds: the bounds of what is read.
        moment: the rate of scale 1: "peak", "mean" or "now".
        parts_max: number of parts at most.
        overrides: the `--set` options for the cluster.
        json_file: also write the evidence there.
        is_forced: whether existing files are overwritten.
        is_dry_run: whether only to say what would be read.
    """

    cluster: str
    topics: tuple[str, ...]
    out: Path
    bounds: Bounds
    moment: str
    parts_max: int
    overrides: tuple[str, ...] = ()
    json_file: Path | None = None
    is_forced: bool = False
    is_dry_run: bool = False


def learn(order: LearnOrder, reporter: Reporter) -> int:
    """Learn the traffic of topics, and write it.

    An interrupt while batches are read ends the reading; what was read until then is written, and
    the interrupt goes on.

    Raises:
        ConfigError: the cluster, the topics or the files are wrong, or this user may not read.
        NoConclusionError: the topics have no records.
        TryLaterError: the cluster does not answer.
    """
    for file in (order.out, evidence_file(order.out), profile_file(order.out)):
        require_new("--out", file, is_forced=order.is_forced)
    cluster = load_cluster(order.cluster, order.overrides)
    if cluster.starts_brokers:
        raise ConfigError(
            f"cluster {cluster.name} starts its own brokers, which have no traffic; expected a "
            "cluster that runs, with bootstrap_servers; name its file with --cluster"
        )
    with ExitStack() as stack:
        opened = open_cluster(cluster, reporter, stack)
        topics = matching_topics(opened.admin, order.topics)
        _say_before(order, topics, reporter)
        if order.is_dry_run:
            return 0
        reporter.report(PhaseStarted(f"learning from {_count(len(topics), 'topic')}"))

        def progress(text: str) -> None:
            reporter.report(PhaseProgress(text))

        survey = _surveyed(opened, topics, order, progress)
        if survey.was_interrupted and not survey.topics:
            raise KeyboardInterrupt  # before the first batch there is nothing to write
        learned = _learned(order, cluster.name, survey, _lag_max_ms(opened))
        if not survey.was_interrupted:
            past = history_of(cluster, opened)
            learned = replace(
                learned, facts={**learned.facts, **past.facts}, notes=(*learned.notes, *past.notes)
            )
    _write(order, learned, reporter)
    _show(learned, survey, order.out, reporter)
    if survey.was_interrupted:
        raise KeyboardInterrupt
    return 0


def _surveyed(
    opened: OpenCluster, topics: Sequence[TopicFacts], order: LearnOrder, progress: object
) -> Survey:
    """The survey.

    Raises:
        ConfigError: this user may not describe the topics.
        TryLaterError: the brokers do not answer.
    """
    surveyor = Surveyor(opened.admin, topics, order.bounds, progress)  # type: ignore[arg-type]
    try:
        return surveyor.make()
    except AdminError as error:
        if "AuthorizationFailed" in error.cause:
            raise ConfigError(str(error)) from error
        raise


def _say_before(order: LearnOrder, topics: Sequence[TopicFacts], reporter: Reporter) -> None:
    bounds = order.bounds
    note(
        reporter,
        f"reads at most {format_volume(bounds.bytes_max)} of recent data in "
        f"{format_duration(bounds.duration_s)} ({bounds.bytes_per_s / 1e6:g} MB/s) from "
        f"{_count(len(topics), 'topic')}; joins no group, commits nothing, and keeps no content "
        "of a message",
    )


def _lag_max_ms(opened: OpenCluster) -> float | None:
    """The largest `replica.lag.time.max.ms` of the brokers [ms]; None where it is unknown."""
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
    """What the survey shows.

    Raises:
        ConfigError: this user may read none of the topics.
        NoConclusionError: the topics have no records.
    """
    if not survey.topics and survey.refused:
        raise ConfigError(
            f"this user may not read {_named(survey.refused)} (TopicAuthorizationFailedError); "
            "expected the ACL Read on the topics, which no group needs; grant it, or choose other "
            "topics"
        )
    if not survey.topics:
        raise NoConclusionError(
            f"{_count(len(survey.idle), 'topic')} with no record in the last hour: "
            f"{_named(survey.idle)}; expected topics with recent records; choose others with "
            "--topics, or learn while producers send"
        )
    topics = [TopicPart.of(each, order.moment) for each in survey.topics]
    every = parts_of(topics, order.parts_max)
    parts = [each for each in every if not is_slow(each)] or list(every[:1])
    learned = tuple(LearnedPart(part, keys_of(part, survey.brokers)) for part in parts)
    notes = [*survey.notes, *lost_by(parts)]
    slow = [topic.name for part in every if part not in parts for topic in part.topics]
    if slow:
        notes.append(f"too few messages for a trial of minutes, left out: {_named(slow)}")
    if survey.refused:
        notes.append(f"this user may not read {_named(survey.refused)}, which are left out")
    if survey.idle:
        notes.append(f"no record in the last hour, left out: {_named(survey.idle)}")
    if survey.throttled_s > 0:
        notes.append(f"brokers asked to wait for {survey.throttled_s:.1f} s, because of a quota")
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
    write_file("--out", evidence, evidence_text(learned))
    written = [order.out, evidence]
    profile = profile_text(learned)
    if profile is not None:
        write_file("--out", profile_file(order.out), profile)
        written.append(profile_file(order.out))
    if order.json_file is not None:
        text = json.dumps(as_document(learned), indent=2, ensure_ascii=False) + "\n"
        write_file("--json", order.json_file, text)
    for file in written:
        note(reporter, f"written: {file}")


def _show(learned: Learned, survey: Survey, out: Path, reporter: Reporter) -> None:
    reporter.report(
        Table(f"Traffic of {learned.cluster} at scale 1", COLUMNS, tuple(table_rows(learned)))
    )
    today = learned.curve.today
    if today.step_s:
        note(
            reporter,
            f"{span_words(today)} of offsets: mean {today.mean:,.4g} messages/s, peak "
            f"{today.peak:,.4g}; the curve covers {span_words(learned.curve)}",
        )
    note(
        reporter,
        f"read {format_volume(survey.bytes_read)} in {format_duration(survey.took_s)}",
    )
    for text in learned.notes[:_NOTES_MAX]:
        note(reporter, text)
    if len(learned.notes) > _NOTES_MAX:
        note(reporter, f"{len(learned.notes) - _NOTES_MAX} more notes are in the evidence")
    note(reporter, f"next: redline find-limit --cluster FILE --workload {out} --dry-run")
    if survey.was_interrupted:
        warn(
            reporter, "interrupted; what was read until then is written, and curves may be missing"
        )


def _named(topics: Sequence[str]) -> str:
    shown = ", ".join(topics[:5])
    return shown if len(topics) <= 5 else f"{shown} and {len(topics) - 5} more"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
