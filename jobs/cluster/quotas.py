"""Quotas that may throttle a run's producers, read where no trial could show the throttling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka import errors as kafka_errors
from kafka.protocol.admin.client_quotas import DescribeClientQuotasRequest

from jobs.cluster.admin import AdminError, KafkaAdmin
from jobs.cluster.opening import OpenCluster
from jobs.config import Workload
from metrics.common.errors import ConfigError
from metrics.sources.beans import Role
from metrics.sources.source import NodeInfo

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
    what, manager = "read the quotas", admin.client._manager
    request = DescribeClientQuotasRequest(components=[], strict=False)

    def ask() -> Any:
        answer = manager.run(manager.send, request)
        error = kafka_errors.for_code(answer.error_code)
        if error is not kafka_errors.NoError:
            raise error(answer.error_message or "")
        return answer

    return [
        Quota(
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in admin.ask(what, ask).entries or ()
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
