"""What a user may do with the topics, groups and transactional ids of a run, before there are any.

Brokers look at the ACLs of a request first and only then for what it is about. So a request
about a topic that does not exist is answered by *not permitted* or by *unknown*, and changes
nothing either way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kafka import errors as kafka_errors
from kafka.protocol.admin import DeleteRecordsRequest
from kafka.protocol.consumer import FetchRequest, HeartbeatRequest
from kafka.protocol.producer import EndTxnRequest, ProduceRequest

from jobs.cluster.admin import LOOK_TIMEOUT_MS, KafkaAdmin
from jobs.cluster.lock import GROUP

_BY_NAME = {"produce": 12, "fetch": 12}
"""The newest versions of these requests that name topics; later ones want an id."""
_END_VERSION = 1
"""Of the end of a transaction, as producers send it."""
_REFUSALS = (
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.TransactionalIdAuthorizationFailedError,
)


@dataclass(frozen=True)
class Permission:
    """What a user may or may not do.

    Attributes:
        deed: in a word or two, for example `write`.
        acl: what grants it, for example `Write on topics`.
        is_granted: False when the brokers refuse it.
        remedy: what to do where it is refused.
    """

    deed: str
    acl: str
    is_granted: bool
    remedy: str = "have it granted"


def permissions(
    admin: KafkaAdmin,
    broker_id: int,
    topic: str,
    *,
    group: str | None = None,
    transactional_id: str | None = None,
    locks: bool = True,
) -> tuple[Permission, ...]:
    """What this client may do with such a topic, such a group and such a transactional id.

    Args:
        broker_id: the broker to ask.
        topic: the name of a topic that does not exist.
        group: the id of a group that does not exist; None when no consumers read along.
        transactional_id: one that does not exist; None when producers have no transactions.
        locks: whether the run takes the cluster's lock.

    Raises:
        AdminError: the broker does not answer.
    """

    def ask(deed: str, acl: str, request: Any, code_of: Callable[[Any], int]) -> Permission:
        answer = _answer(admin, broker_id, deed, request)
        is_refused = isinstance(kafka_errors.for_code(code_of(answer))(), _REFUSALS)
        return Permission(deed, acl, not is_refused)

    found = [
        ask("delete", "Delete on topics", _delete(topic), _of_delete),
        ask("write", "Write on topics", _produce(topic), _of_produce),
    ]
    if group is not None:
        found.append(ask("read", "Read on topics", _fetch(topic), _of_fetch))
        found.append(ask("join a group", "Read on groups", _heartbeat(group), _of_heartbeat))
    if transactional_id is not None:
        acl, end = "Write on transactional ids", _end(transactional_id)
        found.append(ask("write in transactions", acl, end, _of_end))
    if locks:
        remedy = "have it granted, or run with --no-lock where nobody else loads the cluster"
        lock = ask("lock the cluster", "Read on groups", _heartbeat(GROUP), _of_heartbeat)
        found.append(replace(lock, remedy=remedy))
    return tuple(found)


def _answer(admin: KafkaAdmin, broker_id: int, deed: str, request: Any) -> Any:
    manager = admin.client._manager
    return admin.ask(
        f"ask broker {broker_id} whether it lets us {deed}",
        lambda: manager.run(manager.send, request, broker_id, LOOK_TIMEOUT_MS),
    )


def _delete(topic: str) -> Any:
    """To delete records, which wants the same ACL as to delete the topic.

    Brokers do not look at that ACL where a topic that is to be deleted does not exist.
    """
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    partition = kind.DeleteRecordsPartition(partition_index=0, offset=0)
    return DeleteRecordsRequest(
        topics=[kind(name=topic, partitions=[partition])], timeout_ms=LOOK_TIMEOUT_MS
    )


def _of_delete(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)


def _produce(topic: str) -> Any:
    """A produce request without a record."""
    kind = ProduceRequest.TopicProduceData
    return ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=LOOK_TIMEOUT_MS,
        topic_data=[
            kind(name=topic, partition_data=[kind.PartitionProduceData(index=0, records=b"")])
        ],
        max_version=_BY_NAME["produce"],
    )


def _of_produce(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def _fetch(topic: str) -> Any:
    kind = FetchRequest.FetchTopic
    partition = kind.FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=0,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1,
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[kind(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
        max_version=_BY_NAME["fetch"],
    )


def _of_fetch(answer: Any) -> int:
    return int(answer.error_code or answer.responses[0].partitions[0].error_code)


def _heartbeat(group: str) -> Any:
    """Of a member that there is not, in a group that there is not."""
    return HeartbeatRequest(
        group_id=group, generation_id=0, member_id="nobody", group_instance_id=None
    )


def _of_heartbeat(answer: Any) -> int:
    return int(answer.error_code)


def _end(transactional_id: str) -> Any:
    """To abort a transaction that there is not.

    It wants Write, which grants Describe too (https://kafka.apache.org/documentation/#security_authz),
    and unlike the search for a coordinator it makes no topic `__transaction_state`.
    """
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=0,
        producer_epoch=0,
        committed=False,
        max_version=_END_VERSION,
    )


def _of_end(answer: Any) -> int:
    return int(answer.error_code)
