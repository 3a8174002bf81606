"""Single trials on real brokers: a topic, wire producers of one task, and exact windows."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import for_code
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest

from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.connect import connect
from jobs.cluster.topic_set import TopicSet
from jobs.cluster.topics import Topics
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from jobs.trials.sampling import Ends
from metrics.judging.thresholds import Thresholds, Validity
from metrics.judging.verdict import judge
from metrics.sources.jmx import open_jmx
from metrics.sources.sampler import Sampler
from metrics.sources.source import MetricsSource, brokers_of, controllers_of
from metrics.traffic.clients import ConsumerOptions, ProducerPattern
from metrics.traffic.pattern import Phases, TopicOptions, TrafficPattern
from metrics.trial.client import ClientWindow, Counts, TaskReport, merge
from metrics.trial.evidence import ClusterFacts, Evidence, Judgement, follower_lags
from metrics.trial.others import ClientTraffic, others_in
from metrics.windows.broker import BrokerWindow, broker_windows
from tests.support.bare_jvm import bare_jvm
from tests.support.engine_bench import end_offsets_of
from tests.support.fresh_topic import fresh_topic
from tests.support.patterns import plan
from tests.support.processes import controller_of
from tests.support.threads_barrier import run_stage

INTERVAL_S = 1.0

# Producers and sampler share one process here, so a sample may be late under load.
THRESHOLDS = Thresholds(validity=Validity(missed_samples_max=0.4))
Replicas = Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class TrialOutcome:
    evidence: Evidence
    judgement: Judgement


Load = Callable[[], list[TaskReport]]
"""Runs a trial's producers and consumers."""


@dataclass(frozen=True)
class Route:
    """The clients of a trial, and their addresses of the brokers.

    Attributes:
        within: function that runs the clients, for example in another network namespace.
        link_mbit_per_s: stated speed of the brokers' interface.
    """

    brokers: Mapping[int, tuple[str, int]]
    within: Callable[[Load], list[TaskReport]] = lambda work: work()
    link_mbit_per_s: float | None = None
    groups: int = 0


class LoadedBrokers:
    """A testbed for single trials."""

    def __init__(self, testbed: Testbed, admin: KafkaAdmin, source: MetricsSource) -> None:
        self.testbed = testbed
        self._admin = admin
        self.source = source
        self._addresses = admin.describe_cluster().addresses

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Broker id → (host, port)."""
        return dict(self._addresses)

    def topic(self, replicas: Replicas, config: Mapping[str, str]) -> AbstractContextManager[str]:
        """A topic that exists within this context."""
        assigned = {partition: tuple(ids) for partition, ids in replicas.items()}
        return fresh_topic(self._admin, f"loaded-{uuid.uuid4().hex[:8]}", assigned, config)

    def trial(
        self,
        topic: str,
        replicas: Replicas,
        pattern: ProducerPattern,
        producers: int,
        measure_s: float = 10.0,
        warmup_s: float = 6.0,
        route: Route | None = None,
        drain_timeout_s: float = Phases.drain_timeout_s,
    ) -> TrialOutcome:
        """Offer a load, by default through the advertised addresses, and judge it."""
        way = route or Route(self._addresses)
        readers = ConsumerOptions(groups=way.groups)
        load = plan(
            trial_id=topic,
            topics=(topic,),
            pattern=TrafficPattern(
                producers,
                pattern,
                TopicOptions(replication_factor=len(next(iter(replicas.values())))),
                Phases(warmup_s=warmup_s, measure_s=measure_s, drain_timeout_s=drain_timeout_s),
                readers,
            ),
            consumer_tasks=readers.tasks(2),
            leaders=tuple(replicas[partition][0] for partition in sorted(replicas)),
            brokers=way.brokers,
            start_lead_s=0.5,
        )
        before, ended = self.source.sample_all(), end_offsets_of(self._admin, topic, replicas)
        topics = TopicSet(
            (topic,), pattern.message_bytes, {n: tuple(ids) for n, ids in replicas.items()}
        )
        ends = Ends(partial(Topics(self._admin, "loaded").replica_ends, topics))
        with Sampler(self.source, INTERVAL_S) as sampler, Sampler(ends, INTERVAL_S) as replicas_of:
            rows = way.within(lambda: run_stage(load))
            samples, followed = sampler.stop(), replicas_of.stop()
        account = merge(rows)
        assert not account.task_errors, account.task_errors
        span = (account.start_s, account.end_s, INTERVAL_S)
        windows = broker_windows(samples, brokers_of(self.source), *span, way.link_mbit_per_s)
        controllers = broker_windows(samples, controllers_of(self.source), *span)
        polled = self.source.sample_all()
        traffic = ClientTraffic.between(before, polled, brokers_of(self.source))
        offsets = end_offsets_of(self._admin, topic, replicas)
        grown = sum(offsets.values()) - sum(ended.values())
        ours = max(grown, account.counts.acked_total)  # some may wait for followers
        others = others_in(traffic, ours, account, None)
        found = Evidence(
            account,
            windows,
            controllers,
            self.source.name,
            moved_leaders=self._moved_leaders(topic, replicas),
            others=others,
            cluster=ClusterFacts(followers=load.pattern.topic.replication_factor - 1),
            unreplicated_records=max(0, account.counts.acked_total - grown),
            follower_lag=next(
                reversed(follower_lags(followed, account.start_s, account.end_s)), None
            ),
        )
        return TrialOutcome(found, judge(found, THRESHOLDS))

    def _moved_leaders(self, topic: str, replicas: Replicas) -> dict[int, int]:
        """Broker id → number of partitions that it no longer leads."""
        (described,) = self._admin.describe_topics(names=[topic])
        now = described.partitions
        moved = (ids[0] for number, ids in replicas.items() if now[number].leader != ids[0])
        return dict(Counter(moved))

    def end_offsets(self, topic: str, replicas: Replicas) -> dict[int, int]:
        """Partition → end offset that clients see."""
        return end_offsets_of(self._admin, topic, replicas)

    def await_replicated(self, topic: str, replicas: Replicas, records: int) -> None:
        """Wait until all followers have fetched this number of records."""
        deadline_s = time.monotonic() + 30.0
        while sum(end_offsets_of(self._admin, topic, replicas).values()) < records:
            assert time.monotonic() < deadline_s, f"{topic} is not replicated"
            time.sleep(0.1)

    def alter(self, kind: ConfigResourceType, name: str, values: Mapping[str, str]) -> None:
        """Set properties of a running broker, or of a topic."""
        resource = ConfigResource(kind, name, dict(values))
        self._admin.client.alter_configs([resource], raise_on_unknown=False)

    def quota(
        self, key: str, bytes_per_s: float, client_id: str | None = None
    ) -> AbstractContextManager[None]:
        """A quota on these brokers, see `quota`."""
        return quota(self._admin, key, bytes_per_s, client_id)

    def move_leaders(self, topic: str, replicas: Replicas) -> None:
        """Assign these replicas to partitions, and elect the first of each as the leader."""
        moved = {TopicPartition(topic, number): list(ids) for number, ids in replicas.items()}
        refused = self._admin.client.alter_partition_reassignments(moved)
        assert not any(refused.values()), refused
        self._admin.elect_preferred_leaders((topic, number) for number in replicas)


def watched(
    source: MetricsSource, duration_s: float, interval_s: float = 0.5
) -> tuple[tuple[BrokerWindow, ...], float, float]:
    """The brokers over the next seconds, with the begin and the end [s since the epoch]."""
    with Sampler(source, interval_s) as sampler:
        from_s = time.time()
        time.sleep(duration_s)
        to_s, samples = time.time(), sampler.stop()
    return broker_windows(samples, brokers_of(source), from_s, to_s, interval_s), from_s, to_s


def judged_writes(
    source: MetricsSource,
    written: Callable[[], int],
    rate_records_per_s: float,
    message_bytes: int,
    duration_s: float,
    thresholds: Thresholds,
) -> TrialOutcome:
    """A goal's judgement of other producers over the next seconds.

    Args:
        written: number of records in their topics.
        rate_records_per_s: the rate of all of them together.
    """
    before = written()
    windows, from_s, to_s = watched(source, duration_s)
    grown, offered = written() - before, round(rate_records_per_s * (to_s - from_s))
    counts = Counts(offered, grown, grown, 0, offered * message_bytes, grown * message_bytes)
    found = Evidence(ClientWindow(from_s, to_s, counts), windows, (), source.name)
    return TrialOutcome(found, judge(found, thresholds))


@contextmanager
def quota(
    admin: KafkaAdmin,
    key: str,
    bytes_per_s: float,
    client_id: str | None = None,
    kind: str = "client-id",
) -> Iterator[None]:
    """A quota with one of Kafka's keys for a client id, or for all without their own [B/s].

    With `kind` "user" it is the quota of a user, which all clients of the user share.

    The brokers learn of a quota from the controller at different times, so this waits for each of
    them, at the start and at the end.
    """
    request = AlterClientQuotasRequest

    def alter(value: float | None) -> None:
        entity = request.EntryData.EntityData(entity_type=kind, entity_name=client_id)
        change = request.EntryData.OpData(key=key, value=value or 0.0, remove=value is None)
        entry = request.EntryData(entity=[entity], ops=[change])
        manager = admin.client._manager
        answer = manager.run(manager.send, request(entries=[entry], validate_only=False))
        for each in answer.entries:
            assert each.error_code == 0, for_code(each.error_code)

    def values_at(broker_id: int) -> list[dict[str, float]]:
        manager = admin.client._manager
        request = DescribeClientQuotasRequest(components=[], strict=False)
        answer = manager.run(manager.send, request, broker_id)
        assert answer.error_code == 0, for_code(answer.error_code)
        return [{each.key: each.value for each in entry.values} for entry in answer.entries or ()]

    def wait_until(is_known: bool) -> None:
        deadline_s = time.monotonic() + 30.0
        for broker in admin.describe_cluster().brokers:
            while (
                any(each.get(key) == bytes_per_s for each in values_at(broker.id)) is not is_known
            ):
                assert time.monotonic() < deadline_s, f"broker {broker.id}: quota {key}"
                time.sleep(0.1)

    alter(bytes_per_s)
    try:
        wait_until(is_known=True)
        yield
    finally:
        alter(None)
        wait_until(is_known=False)


def jmx_of(testbed: Testbed) -> dict[int, str]:
    """Node id → address of its JMX, for the brokers and their controller."""
    controller = controller_of(testbed)
    return {**testbed.jmx_endpoints, controller.node_id: controller.jmx_endpoint}


@contextmanager
def loaded(testbed: Testbed, jvm: Any) -> Iterator[LoadedBrokers]:
    """Single trials on this testbed, with metrics read by the JVM of a Spark session."""
    with (
        connect(testbed.bootstrap_servers) as admin,
        closing(open_jmx(jmx_of(testbed), jvm, 10.0)) as source,
    ):
        yield LoadedBrokers(testbed, admin, source)


@contextmanager
def loaded_testbed(profile: str, jvm: Any = None, **options: Any) -> Iterator[LoadedBrokers]:
    """A testbed of its own for single trials.

    Args:
        jvm: the JVM that reads the metrics; a bare one by default.
    """
    with ExitStack() as stack:
        if jvm is None:
            jvm, _ = stack.enter_context(bare_jvm())
        yield stack.enter_context(loaded(stack.enter_context(start(profile, **options)), jvm))
