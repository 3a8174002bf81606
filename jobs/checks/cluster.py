"""Checks of the cluster, of the past of its brokers, and of the series that exporters show.

They create and change nothing on the cluster.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise

from jobs.checks.finding import Finding, checked, ok, problem, warning
from jobs.cluster.admin import AdminError, ClusterInfo, TopicSize
from jobs.cluster.given_topics import GivenTopic, fitted, given_topics, notes, warnings
from jobs.cluster.health import ClusterHealth
from jobs.cluster.lock import holder_of, lock_group
from jobs.cluster.opening import LAG_PROPERTY, OpenCluster, require_fitting, window_needed_s
from jobs.cluster.owner_topic import OwnerTopics, owner_topics
from jobs.cluster.permissions import Permission, changes_permitted, permissions, quotas_of
from jobs.cluster.topic_plan import delete_leftovers, leftovers, topic_name
from jobs.cluster.topics import Topics
from jobs.config import Configuration
from jobs.console.events import Level, Notice, RecordingReporter
from jobs.trials.canaries import NO_CANARIES, canary_topic
from jobs.trials.guards import open_guards
from metrics.common.errors import ConfigError, RedlineError
from metrics.sources.beans import HANDLER_IDLE_NS, Reading, Role, beans_for, readings_of
from metrics.sources.first_polls import least_interval_s, slower_sampling, take_first_polls
from metrics.sources.hosts.source import HostSource
from metrics.sources.http_access import ScrapeError
from metrics.sources.one_minute_rates import require_whole_ticks
from metrics.sources.sample import BrokerSample
from metrics.sources.shortcomings import is_blind, missing_metrics, shortcomings
from metrics.sources.source import (
    History,
    KeepsHistory,
    MetricsSource,
    NodeInfo,
    named_brokers,
    sample_interval_of,
)
from metrics.traffic.pattern import SAMPLES_MIN, Phases
from metrics.units import format_counted, format_size, format_some

CHECK = "history"
SPAN_S, STEP_S = 86_400.0, 600.0
"""Length of the history, and of one of its steps [s]."""


def history_findings(
    source: MetricsSource, clock: Callable[[], float] = time.time
) -> list[Finding]:
    """The broker that had the busiest request handlers in the last day, and when.

    Empty if the source keeps no history, or none of the brokers' own handlers.
    """
    is_shared = any(node.controller_share is not None for node in source.nodes.values())
    if is_shared or not isinstance(source, KeepsHistory):
        return []
    step_s, now_s = max(STEP_S, 2 * sample_interval_of(source, 0.0)), clock()
    try:
        known = source.history(HANDLER_IDLE_NS, now_s - SPAN_S, now_s, step_s)
    except ConfigError:
        return []
    except ScrapeError as error:
        return [warning(CHECK, f"the last day of the brokers is unknown: {error}")]
    idle = [
        (share, broker, at_s)
        for broker, values in known.items()
        for share, at_s in _shares(values, step_s)
    ]
    if not idle:
        return [ok(CHECK, f"less than {2 * step_s / 60:.0f} min of the brokers")]
    share, broker, at_s = min(idle)
    first_s = min(values[0][0] for values in known.values() if values)
    day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(at_s))
    return [
        ok(
            CHECK,
            f"{(now_s - first_s) / 3600:.1f} h of the brokers; the request handlers were busiest "
            f"on broker {broker}, idle {share:.2f} in the {step_s / 60:.0f} min to {day} UTC",
        )
    ]


def _shares(values: History, step_s: float) -> list[tuple[float, float]]:
    """The idle share of each step without a gap or a restart, and the step's end."""
    return [
        ((idle_ns - before_ns) / 1e9 / (at_s - before_s), at_s)
        for (before_s, before_ns), (at_s, idle_ns) in pairwise(values)
        if idle_ns >= before_ns and at_s - before_s < 1.5 * step_s
    ]


_NEWEST = "4.2"
_VARIED = re.compile(r"\b(name|request)=[^,]+")
_PHASES = re.compile(r"^(produce|fetch_consumer|fetch_follower|controller)_.+_ms_(count|mean)$")


def readings_findings(nodes: Mapping[int, NodeInfo]) -> list[Finding]:
    """A finding for each reading whose series was found on the pages of exporters.

    The phases of a kind of request have one finding, which names the first of their series.
    """
    found: dict[str, dict[str, list[int]]] = {}
    for node in nodes.values():
        for reading, text in node.series.items():
            named = _PHASES.sub(r"\1_…_ms_\2", reading)
            found.setdefault(named, {}).setdefault(text, []).append(node.node_id)
    choices = sorted({clause for node in nodes.values() for clause in node.choices})
    rows = [ok(f"reading {reading}", _series_text(shown)) for reading, shown in found.items()]
    return [*rows, *(ok("choice of series", clause) for clause in choices)]


def remedies_of_missing(nodes: Mapping[int, NodeInfo]) -> dict[str, str]:
    """The sentence for readings that no series shows → the beans to export, as a clause.

    Empty where the series were not found on the pages of exporters.
    """
    if not any(node.series for node in nodes.values()):
        return {}
    return {
        sentence: f"to read it, have the exporter's rules export {beans_text(names)}"
        for sentence, names in missing_metrics(nodes).items()
    }


def beans_text(names: Collection[str]) -> str:
    """The attributes of the beans of some readings; of many that are alike, their pattern."""
    known = {each.name: each for each in readings_of(beans_for(_NEWEST, tuple(Role)))}
    alike: dict[str, list[Reading]] = {}
    for each in (known[name] for name in names):
        alike.setdefault(_VARIED.sub(r"\1=*", each.object_name), []).append(each)
    texts = []
    for pattern, readings in alike.items():
        objects = {each.object_name for each in readings}
        attributes = dict.fromkeys(
            f"{each.attribute}.{each.key}" if each.key else each.attribute for each in readings
        )
        bean = pattern if len(objects) > 1 else objects.pop()
        texts.append(f"{' and '.join(attributes)} of {bean}")
    return ", ".join(texts)


def _series_text(shown: Mapping[str, Sequence[int]]) -> str:
    """The series of a reading; the brokers of each, where it differs between brokers."""
    if len({tuple(ids) for ids in shown.values()}) == 1:
        first, *others = shown
        return f"{first} and {len(others)} like it" if others else first
    return "; ".join(f"{text} ({named_brokers(ids)})" for text, ids in shown.items())


MESSAGES_NAMED = 6
PROBE, PROBE_S = "doctor-", 120.0
"""The beginning of the ids of checks that probe, and their longest duration [s]."""


def cluster_findings(
    opened: OpenCluster, config: Configuration, locks: bool = True, probes: bool = False
) -> list[Finding]:
    """Findings about a cluster that can be reached.

    Args:
        locks: whether the run would take the cluster's lock.
        probes: whether to make the run's topics and write a record to each broker; the checks
            create nothing on the cluster otherwise.
    """
    run_id = f"{PROBE}{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
    given: tuple[GivenTopic, ...] = ()
    with suppress(RedlineError):  # the check of the topics reports it
        given = given_topics(opened.admin, config.cluster)
    asked, config = config, fitted(config, given)
    checks: tuple[tuple[str, Callable[[], list[Finding]]], ...] = (
        ("brokers", lambda: broker_findings(opened.info)),
        ("replicas", lambda: _replicas(opened)),
        ("topics", lambda: _topics(opened, asked, run_id, probes)),
        ("permissions", lambda: permission_findings(opened, config, run_id, locks)),
        ("lock", lambda: _lock(opened) if locks else []),
        *(
            ("owner's bounds", partial(owner_findings, opened, topic))
            for topic in owner_topics(config.cluster.name_prefix)
        ),
        ("quotas", lambda: _quotas(opened)),
        ("length of a trial", lambda: length_findings(opened, config)),
        ("guards", lambda: _guards(opened, config, run_id)),
    )
    return [finding for check, make in checks for finding in checked(check, make)]


def broker_findings(info: ClusterInfo) -> list[Finding]:
    """Findings about the brokers that serve, and about those that do not."""
    version = ".".join(map(str, info.api_version))
    found = [
        ok("brokers", f"{format_counted(len(info.brokers), 'broker')}, protocol of Kafka {version}")
    ]
    if info.fenced:
        ids = ", ".join(map(str, info.fenced))
        found.append(
            warning(
                "brokers",
                f"fenced and out of service: {ids}",
                "all registered brokers in service, as the limit applies to the serving ones only",
                "see those brokers' logs, or unregister them",
            )
        )
    return found


def _replicas(opened: OpenCluster) -> list[Finding]:
    lacking = sorted(ClusterHealth(opened.admin).under_replicated())
    if not lacking:
        return [ok("replicas", "all in sync")]
    named = format_some(f"partition {each} of the topic {topic}" for topic, each in lacking)
    return [
        warning(
            "replicas",
            f"{named} lacks a replica",
            "all in sync: brokers that catch up are busy, and under-replicated partitions count "
            "as an overload",
            "wait until they are in sync, or find the reason in the brokers' logs",
        )
    ]


def _topics(opened: OpenCluster, config: Configuration, run_id: str, probes: bool) -> list[Finding]:
    given, sizes = given_topics(opened.admin, config.cluster), config.workload.message_bytes
    topics = Topics(
        opened.admin,
        run_id,
        prefix=opened.name_prefix,
        given=given,
        release=opened.info.api_version,
        losable=config.goal.search.brokers_offline or 0,
    )
    for message_bytes in sizes:
        topics.validate(config.heaviest(message_bytes))
    probed = _probe(opened, topics, config) if probes else []
    if given:
        return [
            *probed,
            *(ok("topics", text) for text in notes(config, given)),
            *(warning("topics", text) for text in warnings(given)),
        ]
    named = format_some(map(format_size, sizes), MESSAGES_NAMED)
    return [ok("topics", f"would be accepted, for messages of {named}"), *probed]


def _probe(opened: OpenCluster, topics: Topics, config: Configuration) -> list[Finding]:
    """Write a record of each size to each broker, in topics that are deleted afterwards."""
    admin, before_s = opened.admin, time.time() - PROBE_S
    left = leftovers(admin, opened.name_prefix, config.cluster.topics)
    own = [each for each in left if each.run_id.startswith(PROBE)]
    delete_leftovers(admin, [each for each in own if (each.begun_s or before_s) < before_s])
    try:
        for message_bytes in config.workload.message_bytes:
            pattern = config.heaviest(message_bytes)
            topics.probe(topics.create(pattern), pattern)
    finally:
        topics.delete(topics.made)
    brokers = format_counted(len(opened.info.brokers), "broker")
    return [ok("probe", f"{brokers} took a record of each size and gave it back")]


def permission_findings(
    opened: OpenCluster, config: Configuration, run_id: str, locks: bool
) -> list[Finding]:
    """Findings about the actions of a run that the user has no permission for.

    Args:
        run_id: part of the names of the topic, the group and the transactional id to check.
        locks: whether the run takes the cluster's lock.
    """
    prefix, workload = opened.name_prefix, config.workload
    name = f"{prefix}{run_id}"
    given = config.cluster.topics
    own = topic_name(run_id, workload.message_bytes[0], 1, prefix=prefix)
    found = [
        each
        for topic in given or (own,)
        for each in permissions(
            opened.admin,
            opened.info.broker_ids[0],
            topic,
            is_given=bool(given),
            group=name if any(part.consumers.groups for part in workload.parts) else None,
            transactional_id=(
                name if any(part.producer.has_transactions for part in workload.parts) else None
            ),
            lock_group=lock_group(prefix) if locks else None,
        )
    ]
    return permission_rules(list(dict.fromkeys(found)), prefix)


def _lock(opened: OpenCluster) -> list[Finding]:
    holder = holder_of(opened.admin, opened.info.broker_ids, opened.name_prefix)
    if holder is None:
        return [ok("lock", "free")]
    return [
        warning(
            "lock",
            f"{holder} holds it",
            "one run at a time: another run would end with exit code 75",
            "wait until that run has ended",
        )
    ]


def owner_findings(opened: OpenCluster, topic: str) -> list[Finding]:
    """Findings about the topic in which the cluster's owner states bounds."""
    check, owners = "owner's bounds", OwnerTopics(opened.admin, [topic])
    found = owners.read().get(topic)
    if owners.hidden:
        return [
            warning(
                check,
                f"this user may not describe the topic {topic}",
                "the ACL Read on it, as bounds of the cluster's owner do not apply otherwise",
                "grant it",
            )
        ]
    if found is None:
        return [ok(check, f"none, as there is no topic {topic}")]
    stated = ", ".join(f"{key} {value}" for key, value in found.given.items())
    findings = [ok(check, f"{stated or 'none'} (topic {topic})")]
    changes = changes_permitted(opened.admin, opened.info.broker_ids[0], topic)
    if changes:
        findings.append(
            warning(
                check,
                f"the user of this run may {' and '.join(changes)} the topic {topic}",
                "only the owner of the cluster may, else a run can loosen its bounds",
                f"deny it Write, Delete, Alter and AlterConfigs on the topic {topic}",
            )
        )
    return findings


def _quotas(opened: OpenCluster) -> list[Finding]:
    """The quotas that may throttle the run's clients, which an owner may set for its user."""
    user = opened.client_kwargs().get("sasl_plain_username")
    try:
        found = quotas_of(opened.admin)
    except AdminError as error:
        return [ok("quotas", f"unknown, as this user may not read them ({error.cause})")]
    named = None if user is None else str(user)
    ours = [each for each in found if each.may_hold(named, opened.may_have_client_id)]
    return [ok("quotas", "; ".join(map(str, ours)) or "none for the run's user or by default")]


def permission_rules(found: Sequence[Permission], prefix: str) -> list[Finding]:
    """A problem for each permission that is not granted, a warning for each that is unknown.

    Args:
        prefix: `cluster.name_prefix`.
    """
    check = "permissions"
    lacking = [
        problem(
            check,
            f"the user of cluster security lacks the permission to {each.action}",
            each.needed(prefix),
            each.remedy,
        )
        for each in found
        if not each.is_granted
    ]
    lacking += [
        warning(
            check,
            f"the brokers do not show the permission to {each.action}, as they do not answer "
            "the request for it",
            each.needed(prefix),
        )
        for each in found
        if not each.is_known
    ]
    return lacking or [ok(check, ", ".join(dict.fromkeys(each.action for each in found)))]


def length_findings(opened: OpenCluster, config: Configuration) -> list[Finding]:
    """Findings about the length of a trial, beside what the brokers need to show an overload."""
    for goal in config.goals:
        require_fitting(opened, config.workload, goal)
    measured_s = config.workload.trial.measure_s
    needed_s = window_needed_s(opened, config.workload)
    if needed_s is not None:
        shown = f"lagging followers show after {needed_s:g} s"
    elif config.workload.topic.replication_factor < 2:
        shown = "no followers"
    else:
        shown = f"when lagging followers show is unknown, as no broker reports {LAG_PROPERTY}"
    return [ok("length of a trial", f"{measured_s:g} s measured; {shown}")]


def _guards(opened: OpenCluster, config: Configuration, run_id: str) -> list[Finding]:
    reporter = RecordingReporter()
    guards = open_guards(config, opened.admin, run_id, reporter)
    if config.cluster.topics and guards.limits.canary_p99_ms_max:
        topic, size = canary_topic(f"{opened.name_prefix}{run_id}"), TopicSize(1, 1)
        try:
            opened.admin.create_topic(topic, size, {}, validate_only=True)
        except AdminError as error:
            guards.require_or_warn(f"{NO_CANARIES}: {error}")
    notices = [
        event.text
        for event in reporter.events
        if isinstance(event, Notice) and event.level is not Level.NOTE
    ]
    return [warning("guards", text) for text in notices] or [ok("guards", "can watch the cluster")]


def metrics_findings(
    source: MetricsSource,
    hosts: HostSource | None,
    trial: Phases,
    clock: Callable[[], float] = time.monotonic,
) -> list[Finding]:
    """Findings about the metrics of the brokers and of their hosts, from the first polls.

    Args:
        source: an open source of the brokers' metrics.
        hosts: an open source of the hosts' metrics; None where it cannot be opened.
        trial: the phases of a trial.
        clock: times the polls [s].

    Raises:
        ConfigError: one process answers for several brokers, or several processes for one; or the
            polls take too long for a window.
    """
    polls, interval_s = take_first_polls(source, hosts, clock), trial.sample_interval_s
    least_s = least_interval_s(polls, trial.measure_s, SAMPLES_MIN)
    slower = slower_sampling(polls, interval_s, least_s)
    every_s = max(interval_s, least_s)
    require_whole_ticks(source.nodes, trial.measure_s, every_s)
    timed = f"{polls.poll_s:.2f} s of the {every_s:g} s between two samples"
    named = [ok("brokers' hosts", f"of {_hosts_text(hosts)}")] if hosts and hosts.brokers else []
    return [
        *metrics_rules(source.name, source.nodes, polls.rounds[-1], every_s),
        *named,
        *(warning("time of a poll", sentence) for sentence in slower),
        *(() if slower else (ok("time of a poll", timed),)),
        *history_findings(source),
    ]


def _hosts_text(hosts: HostSource) -> str:
    """The hosts, each with its brokers."""
    return ", ".join(f"{host} ({named_brokers(ids)})" for host, ids in hosts.brokers.items())


def metrics_rules(
    name: str, nodes: Mapping[int, NodeInfo], samples: Sequence[BrokerSample], interval_s: float
) -> list[Finding]:
    """The rules of `metrics_findings`, from nodes and samples."""
    check = "brokers' metrics"
    found = [
        problem(
            check,
            f"broker {sample.broker_id} gave no sample: {sample.error}",
            "a sample of each broker",
            "see that broker's log, and the source of its metrics in the cluster's file",
        )
        for sample in samples
        if sample.error is not None
    ]
    remedies = remedies_of_missing(nodes)
    found += [
        warning(check, sentence, remedy=remedies.get(sentence, ""))
        for sentence in shortcomings(nodes, interval_s)
    ]
    found += readings_findings(nodes)
    if not is_blind(nodes):
        brokers = [node for node in nodes.values() if Role.BROKER in node.roles]
        versions = ", ".join(sorted({node.version for node in brokers}))
        found.append(
            ok(check, f"of {format_counted(len(brokers), 'broker')}, Kafka {versions}, by {name}")
        )
        if len({node.version for node in brokers}) > 1:
            found.append(
                warning(
                    check,
                    f"the brokers run different versions of Kafka ({versions})",
                    "one version, as the limit is that of the mixture",
                    "finish the upgrade first",
                )
            )
    return found
