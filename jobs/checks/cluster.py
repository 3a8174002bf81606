"""Checks of a cluster, of its metrics during the last day, and of the series that exporters show.

The checks change nothing on the cluster. Only checks with --probe create topics, and these checks
delete their topics afterwards.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

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
from metrics.common.grouping import grouped
from metrics.sources.beans import HANDLER_IDLE_NS, Role, beans_for, readings_of
from metrics.sources.first_polls import least_interval_s, slower_sampling, take_first_polls
from metrics.sources.hosts.host_sample import HostSource
from metrics.sources.http_access import ScrapeError
from metrics.sources.one_minute_rates import require_whole_ticks
from metrics.sources.sample import BrokerSample
from metrics.sources.shortcomings import is_blind, missing_metrics, shortcomings
from metrics.sources.source import (
    KeepsHistory,
    MetricsSource,
    NodeInfo,
    named_brokers,
    sample_interval_of,
    steps_of,
)
from metrics.traffic.pattern import SAMPLES_MIN, Phases
from metrics.units import format_counted, format_size, format_some

CHECK = "history"
SPAN_S, STEP_S = 86_400.0, 600.0
"""Duration of the history that the check reads, and of one step of this history [s]."""


def history_findings(
    source: MetricsSource, clock: Callable[[], float] = time.time
) -> list[Finding]:
    """A finding about the last day: the broker whose request handlers were the busiest, and the
    time at which they were the busiest.

    The list is empty if the source has no history. The list is also empty if a broker is also a
    controller, because broker and controller then share the request handlers.
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
        return [warning(CHECK, f"the brokers' metrics of the last day cannot be read: {error}")]
    idle = [
        (idle_ns / 1e9 / (end_s - start_s), broker, end_s)
        for broker, values in known.items()
        for start_s, end_s, idle_ns in steps_of(values, step_s)
    ]
    if not idle:
        return [
            ok(CHECK, f"the source has less than {2 * step_s / 60:.0f} min of the brokers' metrics")
        ]
    share, broker, at_s = min(idle)
    first_s = min(values[0][0] for values in known.values() if values)
    day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(at_s))
    return [
        ok(
            CHECK,
            f"{(now_s - first_s) / 3600:.1f} h of metrics are known; the busiest request handlers "
            f"were on broker {broker}, with an idle fraction of {share:.2f} in the "
            f"{step_s / 60:.0f} min "
            f"before {day} UTC",
        )
    ]


_NEWEST = "4.2"
_VARIED = re.compile(r"\b(name|request)=[^,]+")
_PHASES = re.compile(r"^(produce|fetch_consumer|fetch_follower|controller)_.+_ms_(count|mean)$")


def readings_findings(nodes: Mapping[int, NodeInfo]) -> list[Finding]:
    """One finding for each reading that the exporters provide, with the series of the reading.

    For each type of request, one finding covers all phases, and names the series of the first
    phase.
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
    """Sentence about missing readings → remedy that states which JMX beans to export. Empty if the
    metrics do not come from exporters.
    """
    if not any(node.series for node in nodes.values()):
        return {}
    return {
        sentence: f"add an exporter rule for {beans_text(names)}"
        for sentence, names in missing_metrics(nodes).items()
    }


def beans_text(names: Collection[str]) -> str:
    """The JMX bean attributes that provide the given readings, as text. Similar beans are written
    as one pattern.
    """
    known = {each.name: each for each in readings_of(beans_for(_NEWEST, tuple(Role)))}
    wanted = (known[name] for name in names)
    alike = grouped((_VARIED.sub(r"\1=*", each.object_name), each) for each in wanted)
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
    """The series of a reading. If brokers have different series, the text names the brokers of each
    series.
    """
    if len({tuple(ids) for ids in shown.values()}) == 1:
        first, *others = shown
        return f"{first} and {len(others)} like it" if others else first
    return "; ".join(f"{text} ({named_brokers(ids)})" for text, ids in shown.items())


MESSAGES_NAMED = 6
PROBE, PROBE_S = "doctor-", 120.0
"""Prefix of the run ids of checks with --probe, and the longest duration of these checks [s]."""


def cluster_findings(
    opened: OpenCluster, config: Configuration, locks: bool = True, probes: bool = False
) -> list[Finding]:
    """Findings about a reachable cluster.

    Args:
        locks: whether a run would take the cluster's lock.
        probes: whether to create topics as a run does, and to write a record to each broker.
            Without probes the checks create nothing on the cluster.
    """
    run_id = f"{PROBE}{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
    given: tuple[GivenTopic, ...] = ()
    with suppress(RedlineError):  # the check of the topics reports the error
        given = given_topics(opened.admin, config.cluster)
    asked, config = config, fitted(config, given)
    checks: tuple[tuple[str, Callable[[], Iterable[Finding]]], ...] = (
        ("brokers", lambda: broker_findings(opened.info)),
        ("replicas", lambda: [_replicas(opened)]),
        ("topics", lambda: _topics(opened, asked, run_id, probes)),
        ("permissions", lambda: permission_findings(opened, config, run_id, locks)),
        ("lock", lambda: [_lock(opened)] if locks else []),
        *(
            ("owner's bounds", partial(owner_findings, opened, topic))
            for topic in owner_topics(config.cluster.name_prefix)
        ),
        ("quotas", lambda: [_quotas(opened)]),
        ("length of a trial", lambda: length_findings(opened, config)),
        ("guards", lambda: _guards(opened, config, run_id)),
    )
    return [finding for check, make in checks for finding in checked(check, make)]


def broker_findings(info: ClusterInfo) -> Iterator[Finding]:
    """Findings about the brokers in service, and about fenced brokers."""
    version = ".".join(map(str, info.api_version))
    count = format_counted(len(info.brokers), "broker")
    yield ok("brokers", f"{count}, protocol of Kafka {version}")
    if info.fenced:
        yield warning(
            "brokers",
            f"the brokers {', '.join(map(str, info.fenced))} are fenced, so they are out of "
            "service",
            "all registered brokers in service, because the limit applies only to brokers in "
            "service",
            "see the logs of the fenced brokers, or unregister these brokers",
        )


def _replicas(opened: OpenCluster) -> Finding:
    lacking = sorted(ClusterHealth(opened.admin).under_replicated())
    if not lacking:
        return ok("replicas", "all in sync")
    named = format_some(f"partition {each} of the topic {topic}" for topic, each in lacking)
    return warning(
        "replicas",
        f"{named} has a replica that is not in sync",
        "all replicas in sync, because brokers are busy while replicas catch up, and "
        "under-replicated partitions count as an overload",
        "wait until all replicas are in sync, or see the brokers' logs for the reason",
    )


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
    return [
        ok("topics", f"the cluster accepts the request to create topics for messages of {named}"),
        *probed,
    ]


def _probe(opened: OpenCluster, topics: Topics, config: Configuration) -> list[Finding]:
    """Write a record of each message size to each broker, in topics that are deleted afterwards."""
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
    return [ok("probe", f"{brokers} stored a record of each message size, and returned it")]


def permission_findings(
    opened: OpenCluster, config: Configuration, run_id: str, locks: bool
) -> list[Finding]:
    """Findings about missing permissions: a run performs an action, and the user may not perform
    it.

    Args:
        run_id: id of the run. The names of the topic, the consumer group and the transactional id
            that are checked contain this id.
        locks: whether a run takes the cluster's lock.
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


def _lock(opened: OpenCluster) -> Finding:
    holder = holder_of(opened.admin, opened.info.broker_ids, opened.name_prefix)
    if holder is None:
        return ok("lock", "free")
    return warning(
        "lock",
        f"{holder} has the lock",
        "a free lock, because a run ends with exit code 75 if another run has the lock",
        "wait until the other run has ended",
    )


def owner_findings(opened: OpenCluster, topic: str) -> Iterator[Finding]:
    """Findings about the topic in which the cluster's owner states bounds for all runs."""
    check, owners = "owner's bounds", OwnerTopics(opened.admin, [topic])
    found = owners.read().get(topic)
    if owners.hidden:
        yield warning(
            check,
            f"this user may not describe the topic {topic}",
            "the ACL Read on this topic, because a run ignores bounds that it cannot read",
            "grant the ACL",
        )
    elif found is None:
        yield ok(check, f"no bounds, because the topic {topic} does not exist")
    else:
        stated = ", ".join(f"{key} {value}" for key, value in found.given.items())
        yield ok(check, f"{stated or 'none'} (topic {topic})")
        changes = changes_permitted(opened.admin, opened.info.broker_ids[0], topic)
        if changes:
            yield warning(
                check,
                f"the user of this run has the permission to {' and '.join(changes)} the topic "
                f"{topic}",
                "that only the cluster's owner has this permission, so that no run can loosen the "
                "bounds",
                f"deny this user Write, Delete, Alter and AlterConfigs on the topic {topic}",
            )


def _quotas(opened: OpenCluster) -> Finding:
    """A finding about quotas that may throttle the run's clients."""
    user = opened.client_kwargs().get("sasl_plain_username")
    try:
        found = quotas_of(opened.admin)
    except AdminError as error:
        return ok(
            "quotas", f"the quotas are unknown, because this user may not read them ({error.cause})"
        )
    named = None if user is None else str(user)
    ours = [each for each in found if each.may_apply(named, opened.may_have_client_id)]
    return ok(
        "quotas", "; ".join(map(str, ours)) or "no quota for the run's user, and no default quota"
    )


def permission_rules(found: Sequence[Permission], prefix: str) -> list[Finding]:
    """One problem for each missing permission, and one warning for each unknown permission.

    Args:
        prefix: `cluster.name_prefix`.
    """
    check = "permissions"
    lacking = [
        problem(
            check,
            f"the user in cluster.security lacks the permission to {each.action}",
            each.needed(prefix),
            each.remedy,
        )
        for each in found
        if not each.is_granted
    ]
    lacking += [
        warning(
            check,
            f"the permission to {each.action} is unknown, because the brokers do not support the "
            "request that checks the permission",
            each.needed(prefix),
        )
        for each in found
        if not each.is_known
    ]
    return lacking or [ok(check, ", ".join(dict.fromkeys(each.action for each in found)))]


def length_findings(opened: OpenCluster, config: Configuration) -> list[Finding]:
    """A finding that states whether a trial is long enough for the brokers to report a lagging
    follower.
    """
    for goal in config.goals:
        require_fitting(opened, config.workload, goal)
    measured_s = config.workload.trial.measure_s
    needed_s = window_needed_s(opened, config.workload)
    if needed_s is not None:
        shown = f"lagging followers are visible after {needed_s:g} s"
    elif config.workload.topic.replication_factor < 2:
        shown = "the topic has no followers"
    else:
        shown = (
            f"no broker reports {LAG_PROPERTY}, so the time until a lagging follower is visible is "
            "unknown"
        )
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
    return [warning("guards", text) for text in notices] or [
        ok("guards", "all guards can watch the cluster")
    ]


def metrics_findings(
    source: MetricsSource,
    hosts: HostSource | None,
    trial: Phases,
    clock: Callable[[], float] = time.monotonic,
) -> list[Finding]:
    """Findings about the metrics of the brokers and their hosts, derived from the first polls.

    Args:
        source: the source of the brokers' metrics, after it was opened.
        hosts: the source of the hosts' metrics, after it was opened; None if the source cannot be
            opened.
        trial: the phases of a trial.
        clock: the clock that measures the duration of a poll [s].

    Raises:
        ConfigError: one process answers for several brokers, several processes answer for one
            broker, or the polls take too long for the window of a trial.
    """
    polls, interval_s = take_first_polls(source, hosts, clock), trial.sample_interval_s
    least_s = least_interval_s(polls, trial.measure_s, SAMPLES_MIN)
    slower = slower_sampling(polls, interval_s, least_s)
    every_s = max(interval_s, least_s)
    require_whole_ticks(source.nodes, trial.measure_s, every_s)
    timed = f"a poll takes {polls.poll_s:.2f} s, and two samples are {every_s:g} s apart"
    hosting = hosts.brokers.items() if hosts else ()
    known = ", ".join(f"{host} ({named_brokers(ids)})" for host, ids in hosting)
    named = [ok("brokers' hosts", f"metrics of {known}")] if known else []
    return [
        *metrics_rules(source.name, source.nodes, polls.rounds[-1], every_s),
        *named,
        *(warning("time of a poll", sentence) for sentence in slower),
        *(() if slower else (ok("time of a poll", timed),)),
        *history_findings(source),
    ]


def metrics_rules(
    name: str, nodes: Mapping[int, NodeInfo], samples: Sequence[BrokerSample], interval_s: float
) -> list[Finding]:
    """Findings about missing samples, missing readings and mixed versions."""
    check = "brokers' metrics"
    found = [
        problem(
            check,
            f"broker {sample.broker_id} returned no sample: {sample.error}",
            "a sample from each broker",
            "see the broker's log, and the source of the metrics in the cluster's file",
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
            ok(check, f"{format_counted(len(brokers), 'broker')}, Kafka {versions}, read by {name}")
        )
        if len({node.version for node in brokers}) > 1:
            found.append(
                warning(
                    check,
                    f"the brokers run different versions of Kafka ({versions})",
                    "one version of Kafka on all brokers, because a limit applies only to the "
                    "measured mixture of versions",
                    "finish the upgrade first",
                )
            )
    return found
