"""The topics of a run: creation, check before each trial, and deletion.

A run changes no topics except its own. With `cluster.topics` a run creates and deletes no topics.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

from jobs.cluster.admin import AdminError, KafkaAdmin, TopicSize, query_brokers
from jobs.cluster.given_topics import GivenTopic, assigned, shape
from jobs.cluster.probe import require_records_accepted
from jobs.cluster.topic_plan import (
    Assignment,
    TopicState,
    assignment,
    mark_of,
    require_writable,
    state_of,
    topic_name,
    topic_names,
)
from jobs.cluster.topic_set import (
    REFUSED_ASSIGNMENTS,
    TopicReport,
    TopicSet,
    grown_partitions,
    placed,
)
from jobs.engine.network.options import NAME_PREFIX
from metrics.common.errors import ConfigError, RedlineError
from metrics.common.grouping import grouped
from metrics.traffic.pattern import TopicOptions, TrafficPattern
from metrics.trial.evidence import ReplicaEnds
from metrics.units import format_some

POLL_S = 0.2
BROKERS_PER_CHECK = 32
"""Number of brokers that are queried in one check for the metadata of all partitions."""
PARTITIONS_AT_ONCE = 9_900
"""Largest number of partitions in one request.

A KRaft controller writes at most 10,000 metadata records for one request
(MAX_RECORDS_PER_USER_OP in Kafka's QuorumController): one for each partition, one for the topic and
one for each property of the topic."""
ELECTION_INTERVAL_S = 2.0
"""Time between two requests for the same election of leaders [s]."""

WRONG_REQUESTS = frozenset(
    {
        "ClusterAuthorizationFailedError",
        "InvalidConfigurationError",
        "InvalidReplicationFactorError",
        "InvalidTopicError",
        "TopicAuthorizationFailedError",
        *REFUSED_ASSIGNMENTS,
    }
)
"""Errors of a request to create a topic. The user can remedy these errors by another configuration
of the run.
"""

REFUSED_PROPERTIES = ("InvalidConfigurationError", "PolicyViolationError", "InvalidRequestError")
"""Errors of a request to create a topic if a Kafka service forbids one of the topic's properties.
"""


Seen = TypeVar("Seen")


class TopicError(RedlineError):
    """A topic was not created or deleted within the deadline."""


class Topics:
    """Creates, checks and deletes the topics of one run.

    Args:
        admin: admin client of the cluster.
        run_id: id of the run; part of the topics' names, so that no two runs share a topic.
        prefix: `cluster.name_prefix`.
        owner: id of the run in the topics' mark (see `mark_of`); `run_id` by default.
        is_locked: whether the run holds the cluster's lock.
        given: the topics of `cluster.topics`; if there are any, the run creates no topics.
        release: the brokers' release of Kafka, such as (4, 1); () if the release is unknown.
        losable: number of brokers that the run stops.
        clock, pause: functions for the monotonic time [s] and for a pause [s]; replaced in tests.

    Attributes:
        mark: the topic property that shows which run created the topics; empty if the cluster
            refuses the property.
        offline: brokers that are offline on purpose; new topics also have replicas on these
            brokers.
    """

    def __init__(  # noqa: PLR0913 - what a run knows of its cluster
        self,
        admin: KafkaAdmin,
        run_id: str,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        *,
        prefix: str = NAME_PREFIX,
        owner: str = "",
        is_locked: bool = True,
        given: Sequence[GivenTopic] = (),
        release: tuple[int, ...] = (),
        losable: int = 0,
    ) -> None:
        self._admin = admin
        self._release, self._losable = release, losable
        self._run_id = run_id
        self._clock = clock
        self._pause = pause
        self._prefix = prefix
        self.owner = owner or run_id
        self.mark = mark_of(self.owner, is_locked)
        self._given = tuple(given)
        self._made: dict[str, None] = {}
        self._queried = 0
        self._racks: dict[int, str | None] = {}
        self._caveats: dict[str, None] = {}
        self.offline: frozenset[int] = frozenset()

    @property
    def caveats(self) -> tuple[str, ...]:
        """Clauses about the created topics with uneven leaders: some brokers lead more partitions
        of the topic than other brokers. Empty if the leaders of all topics are even.
        """
        return tuple(filter(None, self._caveats))

    @property
    def name(self) -> str:
        """The first part of the topics' names; no two runs share it."""
        return f"{self._prefix}{self._run_id}"

    @property
    def made(self) -> tuple[str, ...]:
        """Names of the topics that this run created and has not deleted yet."""
        return tuple(self._made)

    def validate(self, pattern: TrafficPattern) -> None:
        """Check that the cluster accepts the topics and the batches; create nothing.

        Raises:
            ConfigError: the cluster would refuse the topic, or every batch written to the topic.
        """
        if self._given:
            for own, each in self._given_to(pattern):
                fit = replace(each, topic=shape(own))
                self._require_writable(fit, fit.topic.config)
            return
        for each in pattern.loads:
            _, properties = self._accepted(each)
            self._require_writable(each, properties)

    def _require_writable(
        self, pattern: TrafficPattern, properties: Mapping[str, str | None]
    ) -> None:
        is_given = bool(self._given)
        require_writable(pattern, properties, is_given, self._release, self._losable)

    def create(self, pattern: TrafficPattern, deadline_s: float = 60.0) -> TopicSet:
        """Create the topics of a pattern, and wait until all replicas are assigned and in sync.

        Topics of `cluster.topics` are not created; the function waits until their replicas are in
        sync.

        If the cluster ignores or refuses the assignment of replicas, the run uses the placement
        that the cluster chooses, and adds partitions while leaders are uneven.

        Raises:
            ConfigError: the cluster refuses the topic, or every batch written to the topic.
            AdminError: the cluster does not answer, or a topic with this name exists.
            TopicError: this run has already created the topic, or a topic is not healthy within
                `deadline_s` [s].
        """
        if self._given:
            return self._take_given(pattern, deadline_s)
        if pattern.parts:
            made = [self.create(each, deadline_s) for each in pattern.parts]
            return TopicSet.of_parts(made, pattern.message_bytes)
        names = self._names(pattern)
        for name in names:
            if name in self._made:
                raise TopicError(
                    f"topic {name} of run {self._run_id} exists already; expected no topic with "
                    "this name; delete the topic first"
                )
        placement, properties = self._accepted(pattern)
        self._require_writable(pattern, properties)
        for name in names:
            placement = self._create(name, placement, pattern.topic)
        if not isinstance(placement, TopicSize):
            planned = TopicSet.assigned(names, pattern.message_bytes, placement, self.offline)
            state = self._poll(
                lambda: self._state(planned),
                lambda each: each.healthy or each.is_placed_otherwise,
                deadline_s,
            )
            if state.healthy:
                return planned
            if not state.is_placed_otherwise:
                raise self._not_ready(names, state, deadline_s)
        brokers = len({*self._brokers(), *self.offline})
        return self._use_placement(pattern, names, brokers, deadline_s)

    def _given_to(
        self, pattern: TrafficPattern
    ) -> list[tuple[tuple[GivenTopic, ...], TrafficPattern]]:
        """Each part of a mix (or the whole pattern) with the topics of `cluster.topics` to which
        the part writes.
        """
        shares = assigned(self._given, [each.topic for each in pattern.loads])
        return list(zip(shares, pattern.loads, strict=True))

    def _take_given(self, pattern: TrafficPattern, deadline_s: float) -> TopicSet:
        found = []
        for own, each in self._given_to(pattern):
            names, per_topic = tuple(topic.name for topic in own), len(own[0].replicas)
            topics = self._await_placement(names, each.message_bytes, per_topic, deadline_s)
            self._caveats[topics.caveat] = None
            found.append(replace(topics, given=shape(own)))
        return TopicSet.of_parts(found, pattern.message_bytes) if pattern.parts else found[0]

    def probe(self, topics: TopicSet, pattern: TrafficPattern) -> None:
        """Write a record to each broker, and read the record back (see
        `require_records_accepted`).
        """
        require_records_accepted(self._admin, topics, pattern)

    def are_moved(self, topics: TopicSet) -> bool:
        """Whether replicas that the run assigned to brokers are on other brokers now."""
        if topics.parts:
            return any(self.are_moved(each) for each in topics.parts)
        return not topics.is_own_placement and self._state(topics).is_placed_otherwise

    def refresh(self, topics: TopicSet) -> TopicSet:
        """Read the current leaders of topics whose replicas the cluster placed.

        If the cluster placed the replicas, it may move them to other brokers at any time. Topics
        whose replicas the run placed are returned unchanged.
        """
        if topics.parts:
            parts = [self.refresh(each) for each in topics.parts]
            return TopicSet.of_parts(parts, topics.message_bytes)
        if not topics.is_own_placement:
            return topics
        found, state = self._read_placement(topics.names, topics.message_bytes, topics.per_topic)
        if found is None or state.missing:
            return topics
        return replace(found, given=topics.given)

    def _create(
        self, name: str, placement: Assignment | TopicSize, wanted: TopicOptions
    ) -> Assignment | TopicSize:
        """Create a topic, and return the placement that the cluster accepted."""
        self._made[name] = None  # before the request, because one without an answer may succeed
        try:
            try:
                self._request(name, placement, wanted)
            except ConfigError as error:
                if isinstance(placement, TopicSize) or not _refuses_assignment(error):
                    raise
                placement = TopicSize(len(placement), wanted.replication_factor)
                self._request(name, placement, wanted)
        except AdminError as error:
            if error.cause == "TopicAlreadyExistsError":
                del self._made[name]
            raise
        return placement

    def _not_ready(self, names: Sequence[str], state: TopicState, deadline_s: float) -> TopicError:
        return TopicError(
            f"the {'' if self._given else 'new '}topic {format_some(names)} is not ready after "
            f"{deadline_s:g} s: "
            f"{'; '.join(state.sentences())}; expected every replica in sync and every "
            "partition led by its planned leader; read the brokers' logs"
        )

    # --- replicas that the cluster places itself ------------------------------

    def _use_placement(
        self, pattern: TrafficPattern, names: tuple[str, ...], brokers: int, deadline_s: float
    ) -> TopicSet:
        """Use the cluster's placement of replicas, and add partitions until all brokers lead about
        equally many (see `grown_partitions`).
        """
        planned = per_topic = brokers * pattern.topic.partitions_per_broker
        while True:
            topics = self._await_placement(names, pattern.message_bytes, per_topic, deadline_s)
            wanted = grown_partitions(topics.leader_counts, per_topic, planned, len(names))
            if wanted == per_topic:
                break
            try:
                for name in names:
                    self._admin.create_partitions(name, wanted)
            except AdminError:  # a topic that was extended already keeps unused partitions
                break
            per_topic = wanted
        self._caveats[topics.caveat] = None
        return topics

    def _await_placement(
        self, names: tuple[str, ...], message_bytes: int, per_topic: int, deadline_s: float
    ) -> TopicSet:
        """Wait until the brokers report the same placement and all replicas are in sync."""
        found: TopicSet | None = None

        def look() -> TopicState:
            nonlocal found
            found, state = self._read_placement(names, message_bytes, per_topic)
            return state

        state = self._poll(look, attrgetter("healthy"), deadline_s)
        if found is None or not state.healthy:
            raise self._not_ready(names, state, deadline_s)
        return found

    def _read_placement(
        self, names: tuple[str, ...], message_bytes: int, per_topic: int
    ) -> tuple[TopicSet | None, TopicState]:
        """The placement according to one broker, and the differences in other brokers' reports.

        Args:
            per_topic: number of partitions that the run uses in each topic; a topic may have more
                partitions.
        """
        brokers, missing = self._brokers(), TopicState(missing=tuple(range(per_topic)))
        try:
            seen = self._admin.partitions_seen_by(brokers[0], names)
        except AdminError as error:
            return None, TopicState(silent=(str(error),))
        replicas: Assignment = {}
        for position, name in enumerate(names):
            known = placed(seen.get(name))
            if known is None or len(known) < per_topic:
                return None, missing
            replicas |= {position * per_topic + n: known[n] for n in range(per_topic)}
        topics = TopicSet(names, message_bytes, replicas, self.offline, True, brokers)
        return topics, self._state(topics)

    def _brokers(self) -> tuple[int, ...]:
        """Ids of the brokers that serve clients; updates `_racks`."""
        info = self._admin.describe_cluster()
        self._racks |= {broker.id: broker.rack for broker in info.brokers}
        return info.broker_ids

    def check(self, topics: TopicSet, deadline_s: float = 60.0) -> TopicReport:
        """Restore the planned leaders, and check that all replicas are in sync.

        The check elects the preferred leaders of topics that the run created, and waits at most
        `deadline_s` [s] until replicas catch up, for example after an overload. If another user
        moved replicas to other brokers, the check does not wait for replicas to catch up. If the
        topics are not healthy, the check raises no error; the report is not `ok`, and the next
        trial is INVALID.
        """
        began = self._clock()
        trouble, elected_at = "", float("-inf")
        before = state = self._state(topics)
        is_kept = all(each.is_own_placement for _, each in topics.numbered)
        while not state.healthy and self._clock() - began < deadline_s:
            if state.is_placed_otherwise and not is_kept:
                break
            is_due = not self._given and self._clock() - elected_at >= ELECTION_INTERVAL_S
            if state.moved and is_due:
                elected_at, trouble, names = self._clock(), "", topics.partition_names
                try:
                    self._admin.elect_preferred_leaders(names[number] for number in state.moved)
                except AdminError as error:
                    trouble = str(error)
            self._pause(POLL_S)
            state = self._state(topics)
        waited_s = self._clock() - began
        return TopicReport(str(topics), before, state, waited_s, trouble)

    def is_in_sync(self, topics: TopicSet) -> bool:
        """Whether every replica is in sync, including replicas on brokers that were offline."""
        whole = replace(topics, offline=frozenset())
        state = self._state(whole)
        return not (state.lagging or state.missing or state.silent)

    def end_offsets(self, topics: TopicSet) -> dict[int, int]:
        """Consecutive number of a partition → the offset of the partition's next record.

        Raises:
            AdminError: the cluster does not answer.
        """
        names = {name: number for number, name in topics.partition_names.items()}
        found = self._admin.end_offsets(names)
        return {number: found[name] for name, number in names.items()}

    def replica_ends(self, topics: TopicSet) -> ReplicaEnds | None:
        """The end offsets of all replicas; None if there are no followers, or an end is unknown."""
        placed = topics.partition_replicas
        if topics.offline or not any(followers for _, *followers in placed.values()):
            return None
        held = grouped((broker, name) for name, held_by in placed.items() for broker in held_by)
        at_s = time.time()
        try:
            ends = self._admin.replica_ends(held)
        except AdminError:
            return None
        written, copied = Counter[int](), Counter[int]()
        for name, (leader, *followers) in placed.items():
            if any(name not in ends[each] for each in (leader, *followers)):
                return None
            for each in followers:
                written[each] += ends[leader][name]
                copied[each] += ends[each][name]
        return ReplicaEnds(at_s, time.time() - at_s, written, copied)

    def moved_leaders(self, topics: TopicSet) -> dict[int, int]:
        """Broker id → number of partitions that the broker should lead and does not lead now.

        Raises:
            AdminError: the cluster does not answer.
        """
        described = self._admin.describe_topics(f"find the leaders of {topics}", topics.names)
        found = {
            (each.name, number): at.leader
            for each in described
            for number, at in each.partitions.items()
        }
        planned = zip(topics.partition_names.values(), topics.leaders, strict=True)
        return dict(Counter(leader for name, leader in planned if found.get(name) != leader))

    def delete(self, names: Sequence[str], deadline_s: float = 60.0) -> None:
        """Delete topics that this run created, and wait until no broker lists them.

        Raises:
            AdminError: the cluster refuses or does not answer.
            TopicError: this run did not create a topic, or a broker still lists the topic after
                `deadline_s` [s].
        """
        if not names:
            return
        for name in names:
            if name not in self._made:
                raise TopicError(
                    f"topic {name} was not created by run {self._run_id}; expected one of "
                    f"{', '.join(self._made) or 'none'}; nothing was deleted"
                )
        for name in names:
            try:
                self._admin.delete_topic(name)
            except AdminError as error:
                if error.cause != "UnknownTopicOrPartitionError":
                    raise
        knowing = self._poll(lambda: self._still_listed(names), lambda each: not each, deadline_s)
        if knowing:
            raise TopicError(
                f"topics of run {self._run_id} are not deleted after {deadline_s:g} s: {knowing}; "
                "expected no broker to list them; read the controllers' logs"
            )
        for name in names:
            del self._made[name]

    def _names(self, pattern: TrafficPattern) -> tuple[str, ...]:
        per_broker = pattern.topic.partitions_per_broker
        name = topic_name(
            self._run_id, pattern.message_bytes, per_broker, pattern.part, self._prefix
        )
        return topic_names(name, pattern.topic.count)

    def _accepted(
        self, pattern: TrafficPattern
    ) -> tuple[Assignment | TopicSize, dict[str, str | None]]:
        """A placement that the cluster accepts, and the properties of the topic.

        The first result is the run's assignment of replicas to brokers. If the cluster refuses
        assignments, or advertises fewer brokers than replicas, the first result is a `TopicSize`,
        with which the cluster assigns the replicas itself.

        Raises:
            ConfigError: the cluster would refuse the topic.
        """
        wanted, name = pattern.topic, self._names(pattern)[-1]  # all topics have one shape
        brokers = sorted({*self._brokers(), *self.offline})
        per_broker, factor = wanted.partitions_per_broker, wanted.replication_factor
        size = TopicSize(len(brokers) * per_broker, factor)
        try:
            replicas = assignment(brokers, per_broker, factor, self._racks)
        except ConfigError as error:
            if not brokers:
                raise
            try:
                return size, self._request(name, size, wanted, validate_only=True)
            except ConfigError:
                raise error from None
        try:
            return replicas, self._request(name, replicas, wanted, validate_only=True)
        except ConfigError as error:
            if not _refuses_assignment(error):
                raise
        return size, self._request(name, size, wanted, validate_only=True)

    def _request(
        self,
        name: str,
        placement: Assignment | TopicSize,
        wanted: TopicOptions,
        validate_only: bool = False,
    ) -> dict[str, str | None]:
        properties = {**self.mark, **wanted.properties}
        try:
            return self._admin.create_topic(name, placement, properties, validate_only)
        except AdminError as error:
            if error.cause not in WRONG_REQUESTS:
                raise
            if validate_only and self.mark and error.cause in REFUSED_PROPERTIES:
                mark, self.mark = self.mark, {}
                with suppress(ConfigError):  # cleanup lists topics without a mark, and deletes none
                    return self._request(name, placement, wanted, validate_only)
                self.mark = mark
            text = str(error)
            partitions = (
                placement.partitions if isinstance(placement, TopicSize) else len(placement)
            )
            if partitions > PARTITIONS_AT_ONCE and error.cause == "PolicyViolationError":
                text += (
                    f"; the topic has {partitions:,} partitions, and Kafka creates about 10,000 at "
                    "once: raise workload.topic.count, and lower "
                    "workload.topic.partitions_per_broker"
                )
            raise ConfigError(text) from error

    def _state(self, topics: TopicSet) -> TopicState:
        """The state of the topics according to the brokers that lead partitions.

        In large clusters each call queries only the next `BROKERS_PER_CHECK` brokers, because the
        size of all answers grows with the square of the number of brokers. All brokers replay the
        controllers' log, so that no broker's metadata are outdated for long.
        """
        state, names = TopicState(), topics.partition_names
        for _, seen in query_brokers(
            lambda broker: self._admin.partitions_seen_by(broker, topics.names),
            self._next_of(topics),
        ):
            if isinstance(seen, AdminError):
                state |= TopicState(silent=(str(seen),))
                continue
            known = {
                number: own[partition]
                for number, (name, partition) in names.items()
                if partition in (own := seen.get(name) or {})
            }
            for first, each in topics.numbered:
                wanted = {first + number: replicas for number, replicas in each.replicas.items()}
                state |= state_of(wanted, known, topics.offline, each.is_own_placement)
        return state

    def _next_of(self, topics: TopicSet) -> list[int]:
        """Brokers to query next: all brokers, or the next `BROKERS_PER_CHECK` in turn."""
        brokers = sorted(set(topics.leaders))
        if len(brokers) <= BROKERS_PER_CHECK:
            return brokers
        first = self._queried % len(brokers)
        self._queried += BROKERS_PER_CHECK
        return [*brokers[first:], *brokers[:first]][:BROKERS_PER_CHECK]

    def _poll(
        self, look: Callable[[], Seen], is_final: Callable[[Seen], bool], deadline_s: float
    ) -> Seen:
        """Call `look` until the answer is final or the deadline is over; return the last answer."""
        began = self._clock()
        while not is_final(seen := look()) and self._clock() - began < deadline_s:
            self._pause(POLL_S)
        return seen

    def _still_listed(self, names: Sequence[str]) -> str:
        """A clause about the first broker that still lists a topic or does not answer; empty if
        there is no such broker.
        """
        brokers = self._admin.describe_cluster().broker_ids
        for broker, seen in query_brokers(
            lambda b: self._admin.partitions_seen_by(b, names), brokers
        ):
            if isinstance(seen, AdminError):
                return str(seen)
            known = [name for name, partitions in seen.items() if partitions is not None]
            if known:
                return f"broker {broker} still lists {', '.join(known[:3])}"
        return ""


def _refuses_assignment(error: ConfigError) -> bool:
    """Whether the error may come from the assignment of replicas. A request without an assignment
    may then succeed.
    """
    cause = error.__cause__
    return isinstance(cause, AdminError) and cause.cause in REFUSED_ASSIGNMENTS
