"""The lock of a cluster: one run at a time, from whatever machine.

Who is a member of the consumer group `redline-lock` holds it. Kafka's classic group protocol
makes the members of a group agree on an assignment protocol that all of them know, and its
coordinator refuses a member that knows none of those of the others (INCONSISTENT_GROUP_PROTOCOL).
Each run names a protocol that nobody else knows. So the coordinator itself, which serves the
requests about a group one after another, lets in the first of any number of runs and refuses the
others at once, and whoever holds the lock notices nothing of it: there is no rebalance, and no
agreement about who was first. A holder that dies sends no heartbeats, and its membership ends with
the session. Brokers keep the membership in `__consumer_offsets`, so it outlives their restarts.

The words that say who holds it are the member's client id: tools show it in every state of the
group (`kafka-consumer-groups --describe --members --group redline-lock`).

Requests go through kafka-python's connection manager, as in `jobs.cluster.permissions`, on a
connection of their own: a broker serves nothing else on a connection while it delays a join.
"""

from __future__ import annotations

import getpass
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
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

from jobs.cluster.admin import LOOK_TIMEOUT_MS, KafkaAdmin
from jobs.cluster.connect import client_of, joined
from jobs.cluster.opening import OpenCluster
from jobs.cluster.topic_plan import PREFIX
from metrics.common.errors import ConfigError, RedlineError, TryLaterError
from metrics.units import iso_utc

GROUP = f"{PREFIX}lock"
"""The consumer group; its protocol type is called the same, so that nobody takes it for readers."""

SESSION_S = 30.0
"""A holder that is not heard of for so long has lost the lock [s].

Overloaded brokers serve a heartbeat after seconds, as they do any other request."""

HEARTBEAT_S = 3.0
TAKING_S = 30.0
"""How long a run waits for the lock that nobody holds [s]: brokers delay the first member of a
group (group.initial.rebalance.delay.ms, 3 s), and may have to make __consumer_offsets first."""

_RETRY_S = 0.5
_ASKED_S = 2.0
_LEAVING_S = 5.0
_DESCRIBE = 5
"""The newest version of this request in which a group that is not there is no error."""
_NO_MEMBER = (
    kafka_errors.UnknownMemberIdError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.RebalanceInProgressError,
)
_DENIED_BY = (
    kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
)


def holder_of(admin: KafkaAdmin, broker_ids: Sequence[int]) -> str | None:
    """Who holds the cluster's lock, in words; None where nobody does, or nobody may say.

    Brokers are asked one after another, as to look for the group's coordinator could make
    `__consumer_offsets`; those that are not the coordinator tell of no members.

    Raises:
        AdminError: a broker does not answer.
    """
    request = DescribeGroupsRequest(groups=[GROUP], max_version=_DESCRIBE)
    manager = admin.client._manager
    for broker in broker_ids:
        answer = admin.ask(
            f"ask broker {broker} who holds the cluster's lock",
            partial(manager.run, manager.send, request, broker, LOOK_TIMEOUT_MS),
        )
        if (holder := _members_in(answer)) is not None:
            return holder
    return None


def _members_in(answer: Any) -> str | None:
    members = answer.groups[0].members
    return " and ".join(f"{m.client_id} (from {m.client_host.strip('/')})" for m in members) or None


def _code_of(answer: Any) -> int:
    return int(answer.error_code)


def holder_words(run_id: str, at_s: float) -> str:
    """Who holds a lock and since when, for whoever comes second."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container need not know its user by name
        user = "somebody"
    words = f"redline run {run_id} of {user}@{socket.gethostname()} since {iso_utc(at_s)}"
    return words.encode("ascii", "replace").decode("ascii")


class RunLocks:
    """The locks of all clusters that one run loads; two sides on one cluster share its lock.

    Args:
        words: who holds them, see `holder_words`.
    """

    def __init__(self, words: str) -> None:
        self._words = words
        self._locks: dict[str, ClusterLock] = {}

    def take(
        self, opened: OpenCluster, tell: Callable[[str], None], stack: ExitStack
    ) -> ClusterLock:
        """Begin to take the lock of a cluster, for as long as the stack is.

        Args:
            tell: see `ClusterLock`.

        Raises:
            ConfigError, TryLaterError: as `ClusterLock.begin`.
        """
        name = opened.info.cluster_id
        if name not in self._locks:
            servers = [joined(*address) for address in opened.info.addresses.values()]
            options = opened.security.client_kwargs()
            lock = ClusterLock(client_of(servers, options, client_id=self._words), tell)
            stack.callback(lock.release)
            lock.begin()
            self._locks[name] = lock
        return self._locks[name]


class ClusterLock:
    """The lock of one cluster, held by a thread that sends heartbeats.

    Args:
        client: a connection of its own, whose client id says who holds the lock; closed with it.
        tell: hears, in a sentence, when the lock cannot be confirmed; called from the thread.
        session_s: see `SESSION_S`; brokers take 6 s and more (group.min.session.timeout.ms).
        heartbeat_s: between two heartbeats [s].

    Attributes:
        lost: why the lock is not ours any more: another run took it; None while none did.
    """

    def __init__(
        self,
        client: KafkaAdminClient,
        tell: Callable[[str], None],
        session_s: float = SESSION_S,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self.lost: str | None = None
        self._group = LockGroup(client, session_s)
        self._tell = tell
        self._session_s = session_s
        self._heartbeat_s = heartbeat_s
        self._asked = threading.Event()  # whether somebody holds it
        self._settled = threading.Event()  # it is ours, or it was refused
        self._leaving = threading.Event()
        self._refusal: RedlineError | None = None
        self._trouble = ""
        self._confirmed_s = time.monotonic()
        self._is_doubt_told = False
        self._thread = threading.Thread(target=self._run, name="redline-lock", daemon=True)

    def begin(self) -> None:
        """Begin to take the lock; brokers may need seconds for it, see `require`.

        Raises:
            ConfigError, TryLaterError: as `require`, where it is known at once.
        """
        self._thread.start()
        self._asked.wait(_ASKED_S)
        self._require_unrefused()

    def require(self, timeout_s: float = TAKING_S) -> None:
        """Return when the lock is ours.

        Raises:
            TryLaterError: another run holds it, or no broker can say within the time.
            ConfigError: the brokers do not permit it.
        """
        self._settled.wait(timeout_s)
        self._require_unrefused()
        if not self._settled.is_set():
            raise TryLaterError(
                f"the lock of the cluster, membership of the consumer group {GROUP}, could not be "
                f"taken within {timeout_s:.0f} s ({self._trouble or 'its coordinator is silent'}); "
                "expected brokers that serve consumer groups; see why __consumer_offsets has no "
                "leader, or run with --no-lock where nobody else loads the cluster"
            )

    def release(self) -> None:
        """Leave the group, so that the next run may begin at once."""
        self._leaving.set()
        if self._thread.is_alive():
            self._thread.join(_LEAVING_S)
        self._group.close()

    # --- on the thread ------------------------------------------------------

    def _run(self) -> None:
        wait_s: float | None = 0.0
        while wait_s is not None and not self._leaving.wait(wait_s):
            wait_s = self._turn()
        if self._leaving.is_set():
            self._group.leave()

    def _turn(self) -> float | None:
        """Join, or show that we live; after how long to do so again [s], None for never."""
        try:
            return self._advance()
        except _DENIED_BY as error:
            why = f"do not permit it ({type(error).__name__})"
            wanted = f"the ACL Read on groups with the prefix {PREFIX} for the user of the run"
            return self._refuse(why, f"{wanted}; have it granted")
        except kafka_errors.InvalidSessionTimeoutError:
            wanted = "group.min.session.timeout.ms and group.max.session.timeout.ms around it"
            why = f"take no session of {self._session_s:g} s"
            return self._refuse(why, f"{wanted}; change them")
        except Exception as error:  # noqa: BLE001 - without its thread the lock would end unseen
            return self._doubt(error)

    def _advance(self) -> float | None:
        try:
            if self._group.is_joined:
                self._group.beat()
            else:
                self._join()
        except kafka_errors.InconsistentGroupProtocolError as error:
            holder = self._group.holder()
            return self._doubt(error) if holder is None else self._yield_to(holder)
        self._confirmed_s, self._is_doubt_told = time.monotonic(), False
        self._settled.set()
        return self._heartbeat_s

    def _join(self) -> None:
        """Ask first, before the run: the answer to a join that is not refused may take 3 s."""
        if not self._settled.is_set() and self._group.holder() is not None:
            raise kafka_errors.InconsistentGroupProtocolError
        self._asked.set()
        self._group.join()

    def _yield_to(self, holder: str) -> float | None:
        if self._settled.is_set():
            self.lost = f"another run took the cluster's lock while the brokers lost ours: {holder}"
            return None
        return self._end_with(
            TryLaterError(
                f"the cluster is in use: {holder} holds its lock, the consumer group {GROUP}; "
                "expected one run at a time, as two would measure each other; try again when it "
                f"has ended (a run that was killed frees the lock within {self._session_s:g} s)"
            )
        )

    def _refuse(self, why: str, wanted: str) -> float | None:
        if self._settled.is_set():  # it was permitted when the run began
            return self._doubt(RedlineError(f"the brokers {why}"))
        return self._end_with(
            ConfigError(
                f"a run locks its cluster as a member of the consumer group {GROUP}, and the "
                f"brokers {why}; expected {wanted}, or run with --no-lock where nobody else loads "
                "the cluster"
            )
        )

    def _end_with(self, error: RedlineError) -> float | None:
        self._refusal = error
        self._asked.set()
        self._settled.set()
        return None

    def _doubt(self, error: Exception) -> float:
        self._trouble = f"{error}" or type(error).__name__
        self._asked.set()  # as far as it goes now; the run goes on opening meanwhile
        silent_s = time.monotonic() - self._confirmed_s
        if self._settled.is_set() and silent_s > self._session_s and not self._is_doubt_told:
            self._is_doubt_told = True
            self._tell(
                f"the cluster's lock could not be confirmed for {silent_s:.0f} s "
                f"({self._trouble}); the run goes on, and ends where another one took the lock"
            )
        return _RETRY_S

    def _require_unrefused(self) -> None:
        if self._refusal is not None:
            raise self._refusal


class LockGroup:
    """One would-be member of the group, and the requests that it sends; no thread of its own.

    Every method may raise `KafkaError`.

    Args:
        client: a connection to the cluster.
        session_s: see `SESSION_S`.
    """

    def __init__(self, client: KafkaAdminClient, session_s: float) -> None:
        self._client = client
        self._timeout_ms = int(session_s * 1000)
        self._protocol = secrets.token_hex(8)  # which nobody else knows
        self._coordinator: int | None = None
        self._member = ""
        self._generation: int | None = None

    @property
    def is_joined(self) -> bool:
        """Whether we are a member, as far as we know."""
        return self._generation is not None

    def holder(self) -> str | None:
        """Who is a member, in words; None where nobody is."""
        request = DescribeGroupsRequest(groups=[GROUP], max_version=_DESCRIBE)
        return _members_in(self._ask(request, lambda answer: int(answer.groups[0].error_code)))

    def join(self) -> None:
        """Become the only member.

        Raises:
            InconsistentGroupProtocolError: somebody else is.
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
                group_id=GROUP,
                generation_id=joined.generation_id,
                member_id=self._member,
                group_instance_id=None,
                protocol_type=GROUP,
                protocol_name=self._protocol,
                assignments=[mine],
            )
        )
        self._generation = joined.generation_id

    def beat(self) -> None:
        """Say that we live."""
        self._ask(
            HeartbeatRequest(
                group_id=GROUP,
                generation_id=self._generation,
                member_id=self._member,
                group_instance_id=None,
            )
        )

    def leave(self) -> None:
        """End the membership; where that fails it ends with the session."""
        kind = LeaveGroupRequest.MemberIdentity
        mine = [kind(member_id=self._member, group_instance_id=None, reason="the run ended")]
        with suppress(kafka_errors.KafkaError):
            self._ask(LeaveGroupRequest(group_id=GROUP, member_id=self._member, members=mine))

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def _joined(self) -> Any:
        mine = JoinGroupRequest.JoinGroupRequestProtocol(name=self._protocol, metadata=b"")
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=self._timeout_ms,
            rebalance_timeout_ms=self._timeout_ms,
            member_id=self._member,
            group_instance_id=None,
            protocol_type=GROUP,
            protocols=[mine],
        )
        wants_id = kafka_errors.MemberIdRequiredError.errno
        return self._ask(
            request, lambda answer: 0 if answer.error_code == wants_id else int(answer.error_code)
        )

    def _ask(self, request: Any, code_of: Callable[[Any], int] = _code_of) -> Any:
        """What the coordinator answers; after an error it is looked for again."""
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
        request = FindCoordinatorRequest(key=GROUP, key_type=0, coordinator_keys=[GROUP])
        answer = manager.run(manager.send, request, None, self._timeout_ms)
        found = answer.coordinators[0] if answer.coordinators else answer
        self._require(found.error_code)
        if manager.cluster.broker_metadata(found.node_id) is None:
            manager.run(manager.cluster.refresh_metadata)
        return int(found.node_id)
