"""What every consumer client does for one task of a trial, whatever library reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from jobs.engine.driver_line import DriverLine
from jobs.engine.partitions import Partitions
from jobs.engine.pattern import TrialPlan
from metrics.trial.consumption import GroupShare
from search.errors import ConfigError

Targets = Callable[[], Mapping[int, int] | None]
"""Partition → offset to read to; None while producers may still be acknowledged more."""


@dataclass(frozen=True)
class Reading:
    """What the consumers of one task did, for the task's row.

    Attributes:
        shares: one for each group with a member here.
        window_start_s, window_end_s: the measured window on the clock of `run` [s].
        loop_busy: share of the window spent outside of waiting [ratio]; 0 when unknown.
    """

    shares: tuple[GroupShare, ...]
    window_start_s: float
    window_end_s: float
    loop_busy: float


class ConsumerClient(Protocol):
    """One task's members of a plan's groups: the same account by any library."""

    def open(self) -> None:
        """Join the groups, and return when every member has its share of the partitions.

        Raises:
            RedlineError: a broker cannot be reached, or a group does not settle in time.
        """
        ...

    def run(
        self, start_s: float, wall_offset_s: float, line: DriverLine | None, targets: Targets
    ) -> Reading:
        """Read through warm-up and window, and then until the targets are reached.

        Args:
            start_s: when the load begins, on the monotonic clock [s].
            wall_offset_s: what to add to that clock for seconds since the epoch.
            line: to the driver, which may end the window early; None when nobody listens.
            targets: how far there is to read once the window is over.

        Raises:
            RedlineError: the reading had to end; the row says why.
        """
        ...

    def close(self) -> None:
        """Leave the groups and close all connections; harmless when nothing is open."""
        ...


def consumer_of(plan: TrialPlan, task: int) -> ConsumerClient:
    """The client that the plan names, for the consumer task of this index; nothing is opened.

    Raises:
        ConfigError: there is no client of this name, or its library is missing.
    """
    assert plan.consumers is not None, "tasks for consumers exist only with consumers"
    name = plan.consumers.client
    if name == "wire":
        from jobs.engine.consumers.wire import WireConsumers

        return WireConsumers(plan, task)
    if name in ("kafka-python", "librdkafka"):
        from jobs.engine.consumers.library import LibraryConsumers

        return LibraryConsumers(plan, task)
    raise ConfigError(f"consumers.client is {name}; expected wire, kafka-python or librdkafka")


def group_id_of(plan: TrialPlan, group: int) -> str:
    """The id of a consumer group, unique in the trial."""
    return f"redline-{plan.trial_id}-group-{group}"


def member_id_of(plan: TrialPlan, group: int, member: int) -> str:
    """The client id of a member, unique in the trial."""
    return f"{group_id_of(plan, group)}-{member}"


def servers_of(plan: TrialPlan) -> list[str]:
    """The brokers as bootstrap addresses."""
    return [
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        for host, port in plan.brokers.values()
    ]


def is_fair_share(owned: int, partitions: Partitions, members: int) -> bool:
    """True when a member owns what it does once all members of its group have joined.

    Kafka's range assignor hands out each topic's partitions evenly, up to one.
    """
    least, rest = divmod(partitions.per_topic, members)
    topics = len(partitions.topics)
    return topics * least <= owned <= topics * (least + (1 if rest else 0))
