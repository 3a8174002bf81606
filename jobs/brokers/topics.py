"""The topics that a run makes, checks before each trial and deletes; it touches no others."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from jobs.brokers.admin import AdminError, KafkaAdmin
from jobs.brokers.topic_plan import (
    Assignment,
    TopicState,
    assignment,
    require_writable,
    state_of,
    topic_name,
)
from jobs.config import Workload
from search.errors import ConfigError, RedlineError

POLL_S = 0.2
ELECTION_INTERVAL_S = 2.0
"""An election takes effect within this time, or is asked for again [s]."""

WRONG_REQUESTS = frozenset(
    {
        "ClusterAuthorizationFailedError",
        "InvalidConfigurationError",
        "InvalidReplicationFactorError",
        "InvalidTopicError",
        "PolicyViolationError",
        "TopicAuthorizationFailedError",
    }
)
"""Errors of a creation that another configuration would not give."""


class TopicError(RedlineError):
    """A topic did not become what was asked for in time."""


@dataclass(frozen=True)
class Topic:
    """A topic of this run; `replicas` is what was assigned and must stay so."""

    name: str
    message_bytes: int
    replicas: Assignment

    @property
    def leaders(self) -> tuple[int, ...]:
        """Broker id that leads partition 0, 1, 2, …"""
        return tuple(self.replicas[number][0] for number in sorted(self.replicas))


@dataclass(frozen=True)
class TopicReport:
    """What a check before a trial found and left.

    Attributes:
        topic: its name.
        before: how it differed when the check began.
        after: how it differs now.
        elections: how often preferred leaders were elected.
        waited_s: how long it took to become well, or until the deadline [s].
        trouble: why the last election failed, or empty.
    """

    topic: str
    before: TopicState
    after: TopicState
    elections: int
    waited_s: float
    trouble: str = ""

    @property
    def ok(self) -> bool:
        """True when a trial may begin."""
        return self.after.healthy

    def sentences(self) -> tuple[str, ...]:
        """Why no trial may begin, a sentence each; empty when one may."""
        if self.ok:
            return ()
        found = (
            f"topic {self.topic} after {self.waited_s:.0f} s: {'; '.join(self.after.sentences())}"
        )
        return (found, self.trouble) if self.trouble else (found,)


class Topics:
    """Makes and keeps the topics of one run.

    Args:
        admin: the cluster's administration.
        run_id: part of the topics' names, so that no two runs share one.
        clock, pause: time [s], handed in for tests.
    """

    def __init__(
        self,
        admin: KafkaAdmin,
        run_id: str,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._admin = admin
        self._run_id = run_id
        self._clock = clock
        self._pause = pause
        self._made: dict[str, Topic] = {}

    @property
    def made(self) -> tuple[Topic, ...]:
        """Topics that this run made and did not delete yet."""
        return tuple(self._made.values())

    def validate(self, workload: Workload, message_bytes: int) -> None:
        """Have the cluster check a topic without making it, and our batches against it.

        Raises:
            ConfigError: when it would refuse the topic or each batch written to it.
        """
        topic = self._planned(workload, message_bytes)
        properties = self._request(topic, workload, validate_only=True)
        require_writable(workload, message_bytes, properties)

    def create(self, workload: Workload, message_bytes: int, deadline_s: float = 60.0) -> Topic:
        """Make the topic for a message size and wait until all brokers lead and follow.

        Raises:
            ConfigError: when the cluster refuses such a topic, or each batch written to it.
            AdminError: when it does not answer, or the name is taken.
            TopicError: when this run has it already, or it is not well within `deadline_s` [s].
        """
        topic = self._planned(workload, message_bytes)
        if topic.name in self._made:
            raise TopicError(
                f"run {self._run_id} has a topic {topic.name} already; expected to make it once; "
                "delete it first"
            )
        self.validate(workload, message_bytes)
        self._made[topic.name] = topic  # first, as a request without an answer may have worked
        try:
            self._request(topic, workload)
        except AdminError as error:
            if error.cause == "TopicAlreadyExistsError":
                del self._made[topic.name]
            raise
        state = self._wait(lambda: self._state(topic), deadline_s)
        if not state.healthy:
            raise TopicError(
                f"the new topic {topic.name} is not ready after {deadline_s:g} s: "
                f"{'; '.join(state.sentences())}; expected every replica in sync and every "
                "leader in place; look at the brokers' logs"
            )
        return topic

    def check(self, topic: Topic, deadline_s: float = 60.0) -> TopicReport:
        """See to it that each partition is led by the assigned broker and its ISR is full.

        Elects preferred leaders where others lead, and waits at most `deadline_s` [s] for
        replicas to catch up, for example after an overload. Never raises for what it finds:
        a report that is not `ok` makes the next trial invalid.
        """
        began = self._clock()
        elections, trouble, elected_at = 0, "", float("-inf")
        before = state = self._state(topic)
        while not state.healthy and self._clock() - began < deadline_s:
            if state.moved and self._clock() - elected_at >= ELECTION_INTERVAL_S:
                elections, elected_at = elections + 1, self._clock()
                trouble = self._elect(topic, state.moved)
            self._pause(POLL_S)
            state = self._state(topic)
        return TopicReport(topic.name, before, state, elections, self._clock() - began, trouble)

    def end_offsets(self, topic: Topic) -> dict[int, int]:
        """Partition → the offset that its next record will get, of all partitions.

        Raises:
            AdminError: when the cluster does not answer.
        """
        return self._admin.end_offsets(topic.name, topic.replicas)

    def delete(self, topic: Topic, deadline_s: float = 60.0) -> None:
        """Delete a topic that this run made, and wait until no broker knows it.

        Raises:
            AdminError: when the cluster refuses or does not answer.
            TopicError: when this run did not make it, or a broker still knows it after
                `deadline_s` [s].
        """
        if topic.name not in self._made:
            raise TopicError(
                f"the topic {topic.name} was not made by run {self._run_id}; expected one of "
                f"{', '.join(self._made) or 'none'}; nothing was deleted"
            )
        try:
            self._admin.delete_topic(topic.name)
        except AdminError as error:
            if error.cause != "UnknownTopicOrPartitionError":
                raise
        knowing = self._wait_until_gone(topic, deadline_s)
        if knowing:
            raise TopicError(
                f"the topic {topic.name} is not gone after {deadline_s:g} s: {knowing}; expected "
                "no broker to know it; delete it by hand"
            )
        del self._made[topic.name]

    def _planned(self, workload: Workload, message_bytes: int) -> Topic:
        wanted = workload.topic
        return Topic(
            topic_name(self._run_id, message_bytes, wanted.partitions_per_broker),
            message_bytes,
            assignment(
                self._admin.describe_cluster().broker_ids,
                wanted.partitions_per_broker,
                wanted.replication_factor,
            ),
        )

    def _request(
        self, topic: Topic, workload: Workload, validate_only: bool = False
    ) -> dict[str, str | None]:
        try:
            return self._admin.create_topic(
                topic.name, topic.replicas, workload.topic.config, validate_only
            )
        except AdminError as error:
            if error.cause in WRONG_REQUESTS:
                raise ConfigError(str(error)) from error
            raise

    def _state(self, topic: Topic) -> TopicState:
        """The state in the eyes of every broker that must take part."""
        state = TopicState()
        for broker in sorted(set(topic.leaders)):
            try:
                seen = self._admin.partitions_seen_by(broker, topic.name)
            except AdminError as error:
                state |= TopicState(silent=(str(error),))
            else:
                state |= state_of(topic.replicas, seen)
        return state

    def _elect(self, topic: Topic, partitions: tuple[int, ...]) -> str:
        """Why the election failed, or an empty text."""
        try:
            self._admin.elect_preferred_leaders(topic.name, partitions)
        except AdminError as error:
            return str(error)
        return ""

    def _wait(self, look: Callable[[], TopicState], deadline_s: float) -> TopicState:
        began = self._clock()
        state = look()
        while not state.healthy and self._clock() - began < deadline_s:
            self._pause(POLL_S)
            state = look()
        return state

    def _wait_until_gone(self, topic: Topic, deadline_s: float) -> str:
        """What still knows the topic at the deadline; empty when it is gone everywhere."""
        began = self._clock()
        while True:
            knowing = self._knowing(topic)
            if not knowing or self._clock() - began >= deadline_s:
                return knowing
            self._pause(POLL_S)

    def _knowing(self, topic: Topic) -> str:
        """A sentence about a broker that knows the topic or does not answer, or empty."""
        for broker in self._admin.describe_cluster().broker_ids:
            try:
                if self._admin.partitions_seen_by(broker, topic.name) is not None:
                    return f"broker {broker} still knows it"
            except AdminError as error:
                return str(error)
        return ""
