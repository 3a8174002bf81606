"""The permissions of a user for the topics, groups and transactional ids of a run.

The module reads the permissions before the run creates anything. Brokers check the ACLs of a
request before they look up the topic. A request for a topic that does not exist therefore changes
nothing, and its error shows the permission. The error *unknown topic* means that the user has the
permission; the error *not permitted* means that the user lacks it.

If no metric shows throttling, the module also reads the quotas that may throttle a run's producers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from kafka import errors as kafka_errors
from kafka.protocol.admin import DeleteRecordsRequest
from kafka.protocol.admin.client_quotas import DescribeClientQuotasRequest
from kafka.protocol.consumer import HeartbeatRequest
from kafka.protocol.producer import EndTxnRequest, ProduceRequest

from jobs.cluster.admin import (
    NOT_SUPPORTED,
    QUERY_TIMEOUT_MS,
    UNREADABLE,
    AdminError,
    KafkaAdmin,
    checked,
    fetch_request,
)
from jobs.cluster.opening import OpenCluster
from jobs.config import Workload
from metrics.common.errors import ConfigError
from metrics.sources.beans import Role
from metrics.sources.source import NodeInfo

PRODUCE_BY_NAME = 12
"""The newest version of the produce request with topic names; later versions have topic ids."""
_END_VERSION = 1
"""The version of the EndTxn request that producers send."""
_REFUSALS = (
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.TransactionalIdAuthorizationFailedError,
)

Query = tuple[Any, Callable[[Any], int]]
"""A request, and a function that returns the error code in its answer."""


@dataclass(frozen=True)
class Permission:
    """An action of a run, and whether the user may perform it.

    Attributes:
        action: the action in a word or two, for example `write`.
        acl: the ACL that permits the action, for example `Write on topics`.
        is_granted: False if the brokers refuse the action.
        remedy: advice to the user if the brokers refuse the action.
        is_known: False if the brokers do not answer the request, so that the permission is unknown
            before the run.
        topic: the topic of `cluster.topics` that the ACL applies to; empty for a prefix ACL.
    """

    action: str
    acl: str
    is_granted: bool
    remedy: str = "grant it"
    is_known: bool = True
    topic: str = ""

    def needed(self, prefix: str) -> str:
        """A noun phrase for the ACL, with the ACL's topic or the prefix of names."""
        return f"the ACL {self.acl} {self.topic or f'with the prefix {prefix}'}"


def permissions(
    admin: KafkaAdmin,
    broker_id: int,
    topic: str,
    *,
    is_given: bool = False,
    group: str | None = None,
    transactional_id: str | None = None,
    lock_group: str | None = None,
) -> tuple[Permission, ...]:
    """The permissions of this user for a topic, a group and a transactional id.

    Args:
        broker_id: the broker to query.
        topic: name of a topic that does not exist, or of a topic of `cluster.topics`.
        is_given: whether the topic is one of `cluster.topics`, which a run never deletes.
        group: id of a group that does not exist; None for a run without consumers.
        transactional_id: a transactional id that does not exist; None without transactions.
        lock_group: consumer group of the cluster's lock; None for a run without a lock.

    Raises:
        AdminError: the broker does not answer.
    """

    def ask(action: str, acl: str, query: Query, **more: Any) -> Permission:
        try:
            is_granted = _is_granted(admin, broker_id, action, query)
        except AdminError as error:
            if error.cause not in (*NOT_SUPPORTED, UNREADABLE):
                raise
            return Permission(action, acl, True, is_known=False, **more)
        return Permission(action, acl, is_granted, **more)

    on, named = ("topic", topic) if is_given else ("topics", "")
    found = [] if is_given else [ask("delete", "Delete on topics", _delete(topic))]
    found.append(ask("write", f"Write on {on}", _produce(topic), topic=named))
    if group is not None:
        found.append(ask("read", f"Read on {on}", _fetch(topic), topic=named))
        found.append(ask("join a group", "Read on groups", _heartbeat(group)))
    if transactional_id is not None:
        acl = "Write on transactional ids"
        found.append(ask("write in transactions", acl, _end(transactional_id)))
    if lock_group is not None:
        remedy = "grant it, or run with --no-lock if no other run loads the cluster"
        lock = _heartbeat(lock_group)
        found.append(ask("lock the cluster", "Read on groups", lock, remedy=remedy))
    return tuple(found)


def changes_permitted(admin: KafkaAdmin, broker_id: int, topic: str) -> list[str]:
    """The changes that this user may make to an existing topic: `write to`, `delete`, or both.

    The function sends a produce request and a request to delete records, which do not change the
    topic. A produce request without a record is invalid, so brokers refuse it. The deletion of all
    records before offset 0 has no effect, because no record has an offset below 0.

    Raises:
        AdminError: the broker does not answer.
    """
    wanted = {"write to": _produce(topic), "delete": _delete(topic)}
    return [act for act in wanted if _is_granted(admin, broker_id, act, wanted[act])]


def _is_granted(admin: KafkaAdmin, broker_id: int, action: str, query: Query) -> bool:
    request, code_of = query
    what = f"check the permission to {action} on broker {broker_id}"
    code = admin.query(what, request, broker_id, read=lambda answer: int(code_of(answer)))
    return not isinstance(kafka_errors.for_code(code)(), _REFUSALS)


def _delete(topic: str) -> Query:
    """A request to delete records. Like the deletion of a topic, this request requires the ACL
    Delete.

    A request to delete a topic does not show the permission, because brokers check the ACL only if
    the topic exists.
    """
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    partition = kind.DeleteRecordsPartition(partition_index=0, offset=0)
    topics = [kind(name=topic, partitions=[partition])]
    return (
        DeleteRecordsRequest(topics=topics, timeout_ms=QUERY_TIMEOUT_MS),
        lambda answer: answer.topics[0].partitions[0].error_code,
    )


def _produce(topic: str) -> Query:
    """A produce request without a record."""
    kind = ProduceRequest.TopicProduceData
    empty = kind(name=topic, partition_data=[kind.PartitionProduceData(index=0, records=b"")])
    return (
        ProduceRequest(
            acks=1, timeout_ms=QUERY_TIMEOUT_MS, topic_data=[empty], max_version=PRODUCE_BY_NAME
        ),
        lambda answer: answer.responses[0].partition_responses[0].error_code,
    )


def _fetch(topic: str) -> Query:
    return (
        fetch_request({(topic, 0): (0, 1)}),
        lambda answer: answer.error_code or answer.responses[0].partitions[0].error_code,
    )


def _heartbeat(group: str) -> Query:
    """A heartbeat of an unknown member in an unknown group."""
    return HeartbeatRequest(group_id=group, member_id="nobody"), attrgetter("error_code")


def _end(transactional_id: str) -> Query:
    """A request to abort a transaction that does not exist.

    The request requires the ACL Write, which also grants Describe
    (https://kafka.apache.org/documentation/#security_authz). Unlike FindCoordinator, this request
    does not create the topic `__transaction_state`.
    """
    request = EndTxnRequest(transactional_id=transactional_id, max_version=_END_VERSION)
    return request, attrgetter("error_code")


PRODUCE_KEYS = ("producer_byte_rate", "request_percentage")
"""Keys of the quotas that throttle producers."""

_THROTTLE_TIME = "produce_throttle_ms_mean"
_REMEDY = (
    "set producer.acks to 1 or all, or configure a source in cluster.metrics that shows request "
    "times"
)


@dataclass(frozen=True)
class Quota:
    """A quota of a cluster.

    Attributes:
        entity: `user`, `client-id` or `ip` → name of the entity; None for the default quota.
        values: Kafka's key, such as `producer_byte_rate` → value of the quota.
    """

    entity: Mapping[str, str | None]
    values: Mapping[str, float]

    def may_throttle(self, user: str | None, is_ours: Callable[[str], bool]) -> bool:
        """Whether the quota may throttle the run's producers; see `may_apply`."""
        return any(key in self.values for key in PRODUCE_KEYS) and self.may_apply(user, is_ours)

    def may_apply(self, user: str | None, is_ours: Callable[[str], bool]) -> bool:
        """Whether the quota may apply to the run's clients; True for a quota on an IP address.

        Args:
            user: the user of the clients; None if the user is unknown.
            is_ours: function that returns whether a client of a run may have the given client id.
        """
        whose, client_id = self.entity.get("user"), self.entity.get("client-id")
        is_of_others = whose is not None and user is not None and whose != user
        is_other_client = client_id is not None and not is_ours(client_id)
        return not is_of_others and not is_other_client

    def __str__(self) -> str:
        whose = ", ".join(f"{kind} {name or 'by default'}" for kind, name in self.entity.items())
        values = ", ".join(f"{key} {value:g}" for key, value in self.values.items())
        return f"{values} for {whose}"


def quotas_of(admin: KafkaAdmin) -> list[Quota]:
    """All quotas of the cluster.

    Raises:
        AdminError: this user may not read the quotas, or the cluster did not answer.
    """
    request = DescribeClientQuotasRequest(components=[], strict=False)
    answer = admin.query("read the quotas", request, timeout_ms=None, read=checked)
    return [
        Quota(
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries or ()
    ]


def is_throttling_unseen(workload: Workload, nodes: Iterable[NodeInfo]) -> bool:
    """Whether a quota could throttle a producer unnoticed.

    The brokers' answers show throttling, except for producers with acks=0. The brokers' metrics
    show throttling if all brokers have metrics for throttle times.
    """
    is_silent = any(part.producer.acks == "0" for part in workload.parts)
    return is_silent and any(
        _THROTTLE_TIME in node.lacks for node in nodes if Role.BROKER in node.roles
    )


def require_throttling_seen(
    opened: OpenCluster, workload: Workload, nodes: Iterable[NodeInfo]
) -> None:
    """Refuse a load if a quota may throttle its producers and no measured value would show the
    throttling.

    Raises:
        ConfigError: no measured value would show throttling, and a quota may apply to the
            producers. Unknown quotas count as quotas that may apply.
    """
    if not is_throttling_unseen(workload, nodes):
        return
    unseen = "producer.acks is 0 and the brokers' metrics do not show throttle times"
    try:
        found = quotas_of(opened.admin)
    except AdminError as error:
        raise ConfigError(
            f"{unseen}, so throttling by a quota would be invisible, and the quotas cannot be "
            f"read: {error}; expected the ACL DescribeConfigs on the cluster; "
            f"{_REMEDY}"
        ) from error
    user = opened.client_kwargs().get("sasl_plain_username")
    named = None if user is None else str(user)
    ours = [each for each in found if each.may_throttle(named, opened.may_have_client_id)]
    if ours:
        raise ConfigError(
            f"{unseen}, so a quota may determine the limit ({ours[0]}); expected no "
            f"quota for these producers; {_REMEDY}, or remove the quota"
        )
