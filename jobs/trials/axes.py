"""The axes of the traffic space that a search may follow: what a load on one of them is.

A load is a whole number. The traffic at a load is the workload with one parameter
replaced, so everything behind it (topics, plans, rows) sees an ordinary workload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jobs.config import Configuration, Goal, Workload
from search.boundary_model import ProducerRate
from search.errors import ConfigError

LOAD_MAX = {"message_bytes": 10_000_000, "partitions": 1_000, "consumer_groups": 100}
"""The highest load on axes whose parameter has a bound of its own."""


@dataclass(frozen=True)
class Traffic:
    """One point of the traffic space, on its way to a trial.

    Attributes:
        axis, load: where on the searched axis it lies.
        workload: with the axis' parameter replaced.
        np: producers.
        bpm: bytes per message [B].
    """

    axis: str
    load: int
    workload: Workload
    np: int
    bpm: int

    @property
    def rate_records_per_s(self) -> float:
        """What one producer offers [1/s]."""
        return self.workload.producer.records_per_s(self.bpm)

    @property
    def mb_per_s(self) -> float:
        """Payload that all producers offer [MB/s]."""
        return self.np * self.rate_records_per_s * self.bpm / 1e6


def traffic_at(workload: Workload, axis: str, bpm: int, load: int) -> Traffic:
    """The traffic at a load.

    Args:
        bpm: message size of the boundary point [B]; on the axis of message sizes the
            load itself is the size.
    """
    if axis == "np":
        return Traffic(axis, load, workload, load, bpm)
    assert workload.np is not None, "checked by require_axis"
    np = workload.np
    if axis == "rate":
        rates = {"rate_records_per_s": float(load), "rate_bytes_per_s": None}
        return Traffic(axis, load, _with(workload, "producer", rates), np, bpm)
    if axis == "partitions":
        changed = _with(workload, "topic", {"partitions_per_broker": load})
        return Traffic(axis, load, changed, np, bpm)
    if axis == "consumer_groups":
        return Traffic(axis, load, _with(workload, "consumers", {"groups": load}), np, bpm)
    sized = workload.model_copy(update={"message_bytes": (load,)})
    return Traffic(axis, load, sized, np, load)


def heaviest(workload: Workload, goal: Goal, bpm: int) -> Traffic:
    """The traffic at a boundary point that a topic can least take, to ask beforehand."""
    search = goal.search
    load = search.load_cap if search.axis == "message_bytes" else 1
    return traffic_at(workload, search.axis, bpm, load)


def _with(workload: Workload, section: str, values: Mapping[str, object]) -> Workload:
    part = getattr(workload, section).model_copy(update=dict(values))
    return workload.model_copy(update={section: part})


def payload_rate(workload: Workload, goal: Goal) -> ProducerRate:
    """The payload that one unit of load offers, for budgets, forecasts and the model.

    Where load does not change the payload (partitions, consumer groups), it is shared out
    over `load_start_max`.
    """
    producer, np = workload.producer, workload.np or 1
    axis, start = goal.search.axis, goal.search.load_start_max
    if axis == "rate":
        return ProducerRate(records_per_s=float(np))
    share = {"np": 1.0, "message_bytes": float(np)}.get(axis, np / start)
    if axis == "message_bytes":
        size = workload.message_bytes[0]
        return ProducerRate(bytes_per_s=share * producer.records_per_s(size))
    records, payload = producer.rate_records_per_s, producer.rate_bytes_per_s
    rate = ProducerRate(
        None if records is None else share * records, None if payload is None else share * payload
    )
    if axis != "np":  # then a unit of load is no producer, and has no batches of its own
        return rate
    return replace(rate, linger_s=producer.linger_ms / 1000.0, batch_bytes=producer.batch_size)


def require_axis(config: Configuration) -> None:
    """Refuse a workload that does not fit the goal's axis.

    Raises:
        ConfigError: np is missing or too much, or the axis has no room.
    """
    workload, search = config.workload, config.goal.search
    axis, name = search.axis, workload.name
    if axis == "np":
        if workload.np is not None:
            raise ConfigError(
                f"workload {name} has np {workload.np} and the goal searches along np; expected "
                "no np; remove it, or choose another goal.search.axis"
            )
        return
    if workload.np is None:
        raise ConfigError(
            f"the goal searches along {axis} and workload {name} has no np; expected the number "
            "of producers to hold fixed; add it, for example by --set workload.np=16"
        )
    most = LOAD_MAX.get(axis)
    if most is not None and search.load_cap > most:
        raise ConfigError(
            f"goal.search.load_cap is {search.load_cap} and {axis} goes up to {most}; expected "
            f"no more; lower it, for example by --set goal.search.load_cap={most}"
        )
    if axis == "message_bytes":
        _require_growing_size(workload, search.load_cap)


def _require_growing_size(workload: Workload, load_cap: int) -> None:
    if len(workload.message_bytes) != 1:
        raise ConfigError(
            f"the goal searches along message_bytes and workload {workload.name} has "
            f"{len(workload.message_bytes)} sizes; expected one, which names the point; give one"
        )
    if workload.producer.rate_records_per_s is None:
        raise ConfigError(
            "the goal searches along message_bytes and the producers' rate is in bytes per "
            "second, so load would not grow with the size; expected "
            "producer.rate_records_per_s; set it and set rate_bytes_per_s to null"
        )
    problem = workload.trouble_with_size(load_cap)
    if problem is not None:
        raise ConfigError(
            f"goal.search.load_cap allows messages of {load_cap} B, and workload {problem}, "
            "or lower the cap"
        )
