"""The lock of a cluster: only one run at a time holds the lock, on all machines together.

The lock is a consumer group with one member: the run that holds the lock. The id of the group is
`redline-lock`, or `cluster.name_prefix` followed by `lock`. Kafka's classic group protocol requires
an assignment protocol that all members of a group support. The coordinator refuses a member without
a common protocol (INCONSISTENT_GROUP_PROTOCOL). Each run names a random protocol, so the
coordinator accepts the first run, and refuses all other runs at once. A refused run causes no
rebalance, so it does not disturb the run that holds the lock. If the run that holds the lock dies,
its heartbeats stop, and its membership ends with its session. Brokers store the membership in
`__consumer_offsets`, so the membership outlives a restart of the brokers.

The member's client id describes the run that holds the lock. Kafka's tools show the client id in
every state of the group (`kafka-consumer-groups --describe --members --group redline-lock`).

Requests go through kafka-python's connection manager. The lock has its own connection, because a
broker serves no other request on a connection while it delays a join.
"""

from __future__ import annotations

import getpass
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from operator import attrgetter
from typing import Any

from kafka import KafkaAdminClient
from kafka import errors as kafka_errors
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest

from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.connect import admin_client
from jobs.cluster.opening import OpenCluster
from jobs.engine.network.options import NAME_PREFIX, join_address
from metrics.common.errors import ConfigError, RedlineError, TryLaterError
from metrics.units import iso_utc


def lock_group(prefix: str) -> str:
    """The name of the lock's consumer group; the group's protocol type has the same name.

    Args:
        prefix: `cluster.name_prefix`.
    """
    return f"{prefix}lock"


SESSION_S = 30.0
"""Time without a heartbeat after which a run loses the lock [s]. The time is long, because
overloaded brokers answer heartbeats seconds late."""

HEARTBEAT_S = 3.0
TAKING_S = 30.0
"""Longest wait for a free lock [s]. Brokers delay the first member of a group by
group.initial.rebalance.delay.ms (3 s), and may have to create __consumer_offsets first."""

_RETRY_S = 0.5
_QUERY_S = 2.0
_LEAVING_S = 5.0
_DESCRIBE = 5
"""The newest version of DescribeGroups that answers without an error for a missing group."""
_NO_MEMBER = (
    kafka_errors.UnknownMemberIdError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.RebalanceInProgressError,
)
_DENIED_BY = (
    kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
)


def holder_of(
    admin: KafkaAdmin, broker_ids: Sequence[int], prefix: str = NAME_PREFIX
) -> str | None:
    """The description of the lock's holder; None if the lock is free or cannot be read.

    Brokers are queried one after another, because a request for the group's coordinator could
    create `__consumer_offsets`. A broker that is not the coordinator reports no members.

    Raises:
        AdminError: a broker does not answer.
    """
    request = DescribeGroupsRequest(groups=[lock_group(prefix)], max_version=_DESCRIBE)
    for broker in broker_ids:
        what = f"query broker {broker} for the holder of the cluster's lock"
        holder: str | None = admin.query(what, request, broker, read=_members_in)
        if holder is not None:
            return holder
    return None


def _members_in(answer: Any) -> str | None:
    words = (
        f"{bytes(each.member_metadata or b'').decode(errors='replace') or each.client_id} "
        f"(from {each.client_host.strip('/')})"
        for each in answer.groups[0].members
    )
    return " and ".join(words) or None


def holder_text(run_id: str, at_s: float) -> str:
    """The description of a lock's holder for other runs: the holder's run id, user, host and start
    time.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container may have no name for its user
        user = "unknown"
    words = f"redline run {run_id} of {user}@{socket.gethostname()} since {iso_utc(at_s)}"
    return words.encode("ascii", "replace").decode("ascii")


class RunLocks:
    """The locks of all clusters that one run loads. A cluster has one lock, even if the run uses
    the cluster twice.

    Args:
        holder: description of the run (see `holder_text`).
    """

    def __init__(self, holder: str) -> None:
        self._holder = holder
        self._locks: dict[str, ClusterLock] = {}

    def take(
        self, opened: OpenCluster, warn: Callable[[str], None], stack: ExitStack
    ) -> ClusterLock:
        """Begin to take the lock of a cluster; `stack` releases the lock.

        Args:
            warn: see `ClusterLock`.

        Raises:
            ConfigError, TryLaterError: see `ClusterLock.begin`.
        """
        servers = [join_address(*address) for address in opened.info.addresses.values()]
        # Some Kafka-compatible brokers report no cluster id.
        name = f"{opened.info.cluster_id or ','.join(sorted(servers))} {opened.name_prefix}"
        if name not in self._locks:
            client = admin_client(servers, opened.client_kwargs(), name=self._holder)
            lock = ClusterLock(client, warn, prefix=opened.name_prefix, holder=self._holder)
            stack.callback(lock.release)
            lock.begin()
            self._locks[name] = lock
        return self._locks[name]


class ClusterLock:
    """The lock of one cluster; a thread holds the lock by heartbeats.

    Args:
        client: an admin client for this lock only; the lock closes it.
        warn: function that is called with a sentence if the lock cannot be confirmed. The function
            runs on the thread that sends the heartbeats.
        session_s: see `SESSION_S`; brokers accept 6 s or more (group.min.session.timeout.ms).
        heartbeat_s: time between two heartbeats [s].
        prefix: `cluster.name_prefix`.
        holder: description of the holder for other runs; if empty, other runs show the client id.

    Attributes:
        lost: a sentence if another run has taken the lock from this run; None otherwise.
        doubt: a sentence if the last confirmation of the lock is more than `session_s` old; None
            otherwise.
    """

    def __init__(
        self,
        client: KafkaAdminClient,
        warn: Callable[[str], None],
        session_s: float = SESSION_S,
        heartbeat_s: float = HEARTBEAT_S,
        prefix: str = NAME_PREFIX,
        holder: str = "",
    ) -> None:
        self.lost: str | None = None
        self.doubt: str | None = None
        self._group = LockGroup(client, session_s, lock_group(prefix), holder)
        self._prefix = prefix
        self._warn = warn
        self._session_s = session_s
        self._heartbeat_s = heartbeat_s
        self._queried = threading.Event()  # the query for a holder is answered
        self._settled = threading.Event()  # the lock is taken or refused
        self._leaving = threading.Event()
        self._refusal: RedlineError | None = None
        self._trouble = ""
        self._confirmed_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="redline-lock", daemon=True)

    def begin(self) -> None:
        """Begin to take the lock; brokers may need seconds, and `require` waits for the result.

        Raises:
            ConfigError: the brokers refuse the group membership at once, for example because the
                user lacks a permission.
            TryLaterError: the brokers answer at once that another run holds the lock.
        """
        self._thread.start()
        self._queried.wait(_QUERY_S)
        self._require_unrefused()

    def require(self, timeout_s: float = TAKING_S) -> None:
        """Wait until this run holds the lock.

        Raises:
            TryLaterError: another run holds the lock, or the brokers do not answer in time.
            ConfigError: the brokers refuse the group membership, for example because the user lacks
                a permission.
        """
        self._settled.wait(timeout_s)
        self._require_unrefused()
        if not self._settled.is_set():
            raise TryLaterError(
                f"the cluster's lock (membership of the consumer group {self._group.name}) could "
                f"not be taken within {timeout_s:.0f} s "
                f"({self._trouble or 'its coordinator is silent'}); "
                "expected brokers that serve consumer groups; check the leaders of "
                "__consumer_offsets, or run with --no-lock if no other run loads the cluster"
            )

    def release(self) -> None:
        """Leave the group, so that the next run can take the lock at once."""
        self._leaving.set()
        if self._thread.is_alive():
            self._thread.join(_LEAVING_S)
        self._group.close()

    # --- runs on the thread --------------------------------------------------

    def _run(self) -> None:
        wait_s: float | None = 0.0
        while wait_s is not None and not self._leaving.wait(wait_s):
            wait_s = self._turn()
        if self._leaving.is_set():
            self._group.leave()

    def _turn(self) -> float | None:
        """Join the group, or send a heartbeat. Return the time until the next call [s]; None if
        this was the last call.
        """
        try:
            return self._advance()
        except _DENIED_BY as error:
            why = f"do not permit it ({type(error).__name__})"
            wanted = (
                f"the ACL Read on groups with the prefix {self._prefix} for the user of the run"
            )
            return self._refuse(why, f"{wanted}; grant it")
        except kafka_errors.InvalidSessionTimeoutError:
            wanted = "group.min.session.timeout.ms and group.max.session.timeout.ms around it"
            why = f"accept no session of {self._session_s:g} s"
            return self._refuse(why, f"{wanted}; change them")
        except Exception as error:  # noqa: BLE001 - an error must not end the thread
            return self._doubt(error)

    def _advance(self) -> float | None:
        try:
            if self._group.is_joined:
                self._group.send_heartbeat()
            else:
                # The query for a member is answered at once; an accepted join may take 3 s.
                if not self._settled.is_set() and self._group.holder() is not None:
                    raise kafka_errors.InconsistentGroupProtocolError
                self._queried.set()
                self._group.join()
        except kafka_errors.InconsistentGroupProtocolError as error:
            holder = self._group.holder()
            return self._doubt(error) if holder is None else self._yield_to(holder)
        self._confirmed_s, self.doubt = time.monotonic(), None
        self._settled.set()
        return self._heartbeat_s

    def _yield_to(self, holder: str) -> float | None:
        if self._settled.is_set():
            self.lost = (
                f"{holder} took the cluster's lock after the brokers had lost this run's lock"
            )
            return None
        return self._end_with(
            TryLaterError(
                f"the cluster is in use: {holder} holds its lock, the consumer group "
                f"{self._group.name}; "
                "expected one run at a time, because runs disturb each other's measurements; try "
                f"again after that run (the lock of a killed run is free after {self._session_s:g} "
                "s)"
            )
        )

    def _refuse(self, why: str, wanted: str) -> float | None:
        if self._settled.is_set():  # the brokers permitted it when the run began
            return self._doubt(RedlineError(f"the brokers {why}"))
        return self._end_with(
            ConfigError(
                f"a run locks its cluster as a member of the consumer group "
                f"{self._group.name}, and the "
                f"brokers {why}; expected {wanted}, or run with --no-lock if no other run loads "
                "the cluster"
            )
        )

    def _end_with(self, error: RedlineError) -> float | None:
        self._refusal = error
        self._queried.set()
        self._settled.set()
        return None

    def _doubt(self, error: Exception) -> float:
        self._trouble = f"{error}" or type(error).__name__
        self._queried.set()  # the run continues to open its parts
        silent_s = time.monotonic() - self._confirmed_s
        if self._settled.is_set() and silent_s > self._session_s and self.doubt is None:
            self.doubt = (
                f"the cluster's lock could not be confirmed for {silent_s:.0f} s ({self._trouble})"
            )
            self._warn(f"{self.doubt}; the run continues, and ends if another run took the lock")
        return _RETRY_S

    def _require_unrefused(self) -> None:
        if self._refusal is not None:
            raise self._refusal


class LockGroup:
    """The requests of a member of the lock's consumer group.

    Every method may raise `KafkaError`.

    Args:
        client: a connection to the cluster.
        session_s: see `SESSION_S`.
        name: the name of the group.
        holder: see `ClusterLock`.
    """

    def __init__(
        self, client: KafkaAdminClient, session_s: float, name: str, holder: str = ""
    ) -> None:
        self._holder = holder.encode()
        self.name = name
        self._client = client
        self._timeout_ms = int(session_s * 1000)
        self._protocol = secrets.token_hex(8)  # no other member supports it
        self._coordinator: int | None = None
        self._member = ""
        self._generation: int | None = None

    @property
    def is_joined(self) -> bool:
        """Whether the coordinator's last answer confirmed the membership."""
        return self._generation is not None

    def holder(self) -> str | None:
        """The description of the group's members; None if the group has no members."""
        request = DescribeGroupsRequest(groups=[self.name], max_version=_DESCRIBE)
        return _members_in(self._ask(request, lambda answer: answer.groups[0].error_code))

    def join(self) -> None:
        """Become the only member.

        Raises:
            InconsistentGroupProtocolError: the group has another member.
        """
        joined = self._joined()
        if joined.error_code == kafka_errors.MemberIdRequiredError.errno:
            self._member = joined.member_id
            joined = self._joined()
            self._require(joined.error_code)
        self._member = joined.member_id
        mine = SyncGroupRequest.SyncGroupRequestAssignment(member_id=self._member, assignment=b"")
        self._ask(
            SyncGroupRequest(
                group_id=self.name,
                generation_id=joined.generation_id,
                member_id=self._member,
                protocol_type=self.name,
                protocol_name=self._protocol,
                assignments=[mine],
            )
        )
        self._generation = joined.generation_id

    def send_heartbeat(self) -> None:
        """Confirm the membership."""
        self._ask(
            HeartbeatRequest(
                group_id=self.name, generation_id=self._generation, member_id=self._member
            )
        )

    def leave(self) -> None:
        """End the membership; if the request fails, the membership ends with the session."""
        kind = LeaveGroupRequest.MemberIdentity
        mine = [kind(member_id=self._member, reason="the run ended")]
        with suppress(kafka_errors.KafkaError):
            self._ask(LeaveGroupRequest(group_id=self.name, member_id=self._member, members=mine))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _joined(self) -> Any:
        kind = JoinGroupRequest.JoinGroupRequestProtocol
        mine = kind(name=self._protocol, metadata=self._holder)
        request = JoinGroupRequest(
            group_id=self.name,
            session_timeout_ms=self._timeout_ms,
            rebalance_timeout_ms=self._timeout_ms,
            member_id=self._member,
            protocol_type=self.name,
            protocols=[mine],
        )
        wants_id = kafka_errors.MemberIdRequiredError.errno
        return self._ask(
            request, lambda answer: 0 if answer.error_code == wants_id else answer.error_code
        )

    def _ask(self, request: Any, code_of: Callable[[Any], int] = attrgetter("error_code")) -> Any:
        """Send a request to the coordinator; after an error, the next call looks up the
        coordinator.
        """
        manager = self._client._manager
        try:
            if self._coordinator is None:
                self._coordinator = self._find()
            answer = manager.run(manager.send, request, self._coordinator, self._timeout_ms)
            self._require(code_of(answer))
        except kafka_errors.KafkaError:
            self._coordinator = None
            raise
        return answer

    def _require(self, code: int) -> None:
        error = kafka_errors.for_code(code)
        if error is kafka_errors.NoError:
            return
        if error in _NO_MEMBER:
            self._generation = None
        if error is kafka_errors.UnknownMemberIdError:
            self._member = ""
        raise error()

    def _find(self) -> int:
        manager = self._client._manager
        request = FindCoordinatorRequest(key=self.name, coordinator_keys=[self.name])
        answer = manager.run(manager.send, request, None, self._timeout_ms)
        found = answer.coordinators[0] if answer.coordinators else answer
        self._require(found.error_code)
        if manager.cluster.broker_metadata(found.node_id) is None:
            manager.run(manager.cluster.refresh_metadata)
        return int(found.node_id)
