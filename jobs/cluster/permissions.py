"""The permissions of a user for the topics, groups and transactional ids of a run.

They are known before any of these exist: brokers check the ACLs of a request before they look up
its topic. A request for a topic that does not exist is answered by *not permitted* or by
*unknown*, and changes nothing.

Quotas that may throttle a run's producers, read where no trial could show the throttling.
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
"""The newest version of this request that names topics; later ones need an id."""
_END_VERSION = 1
"""The version of the request to end a transaction that producers send."""
_REFUSALS = (
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.TransactionalIdAuthorizationFailedError,
)

Query = tuple[Any, Callable[[Any], int]]
"""A request, and the error code in its answer."""


@dataclass(frozen=True)
class Permission:
    """An action of a run, and whether the user may perform it.

    Attributes:
        action: the action in a word or two, for example `write`.
        acl: the ACL that grants it, for example `Write on topics`.
        is_granted: False when the brokers refuse it.
        remedy: what to do when it is refused.
        is_known: False where the brokers do not answer such a request, so that a run may find it
            granted or refused.
        topic: the topic of `cluster.topics` that the ACL names; empty for an ACL with a prefix.
    """

    action: str
    acl: str
    is_granted: bool
    remedy: str = "grant it"
    is_known: bool = True
    topic: str = ""

    def needed(self, prefix: str) -> str:
        """The ACL as a noun phrase, for names with this prefix."""
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
    """The permissions of this user for a topic, a group and a transactional id by these names.

    Args:
        broker_id: the broker to query.
        topic: name of a topic that does not exist, or of a topic of `cluster.topics`.
        is_given: whether it is such a topic, which a run never deletes.
        group: id of a group that does not exist; None for a run without consumers.
        transactional_id: id that does not exist; None for producers without transactions.
        lock_group: group of the cluster's lock; None for a run without lock.

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
    """What this user may do to a topic that exists: write to it, or delete it.

    A produce request without a record is refused as invalid, and all records before offset 0 are
    deleted already, so nothing changes.

    Raises:
        AdminError: the broker does not answer.
    """
    wanted = {"write to": _produce(topic), "delete": _delete(topic)}
    return [act for act in wanted if _is_granted(admin, broker_id, act, wanted[act])]


def _is_granted(admin: KafkaAdmin, broker_id: int, action: str, query: Query) -> bool:
    request, code_of = query
    what = f"ask broker {broker_id} for the permission to {action}"
    code = admin.query(what, request, broker_id, read=lambda answer: int(code_of(answer)))
    return not isinstance(kafka_errors.for_code(code)(), _REFUSALS)


def _delete(topic: str) -> Query:
    """A request to delete records, which requires the same ACL as to delete the topic.

    A request to delete a topic that does not exist is answered without a check of the ACL.
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

    It requires Write, which grants Describe too (https://kafka.apache.org/documentation/#security_authz).
    Unlike a search for the coordinator, it does not create the topic `__transaction_state`.
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
        entity: `user`, `client-id` or `ip` → its name; None is the default of all that have no
            quota of their own.
        values: Kafka's key, such as `producer_byte_rate`, → its value.
    """

    entity: Mapping[str, str | None]
    values: Mapping[str, float]

    def may_throttle(self, user: str | None, is_ours: Callable[[str], bool]) -> bool:
        """Whether it may throttle the run's producers; see `may_hold`."""
        return any(key in self.values for key in PRODUCE_KEYS) and self.may_hold(user, is_ours)

    def may_hold(self, user: str | None, is_ours: Callable[[str], bool]) -> bool:
        """Whether it may hold for the run's clients, as one of any address may.

        Args:
            user: the user of the clients; None where it is unknown.
            is_ours: whether a client of a run may have this id.
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
        AdminError: this user may not read them, or the cluster did not answer.
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
    """Whether neither the brokers' answers nor their metrics would show a throttling quota."""
    is_silent = any(part.producer.acks == "0" for part in workload.parts)
    return is_silent and any(
        _THROTTLE_TIME in node.lacks for node in nodes if Role.BROKER in node.roles
    )


def require_throttling_seen(
    opened: OpenCluster, workload: Workload, nodes: Iterable[NodeInfo]
) -> None:
    """Refuse a load that a quota could limit without any sign of it.

    Raises:
        ConfigError: the brokers' metrics show no throttle times, acks=0 has no answers with them,
            and a quota may apply to the producers or the quotas cannot be read.
    """
    if not is_throttling_unseen(workload, nodes):
        return
    unseen = "producer.acks is 0 and the brokers' metrics do not show throttle times"
    try:
        found = quotas_of(opened.admin)
    except AdminError as error:
        raise ConfigError(
            f"{unseen}, so that a throttling quota would not show, and the quotas cannot be read: "
            f"{error}; expected the right to describe them (DescribeConfigs on the cluster); "
            f"{_REMEDY}"
        ) from error
    user = opened.client_kwargs().get("sasl_plain_username")
    named = None if user is None else str(user)
    ours = [each for each in found if each.may_throttle(named, opened.may_have_client_id)]
    if ours:
        raise ConfigError(
            f"{unseen}, so that the limit found could be that of a quota ({ours[0]}); expected no "
            f"quota for these producers; {_REMEDY}, or remove the quota"
        )
