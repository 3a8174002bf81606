"""What counts as sustained, what makes a trial invalid, and how finely to search."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import model_validator

from jobs.config.base import ConfigModel, Name, Number, Whole
from metrics.judging import thresholds
from metrics.judging.thresholds import Thresholds

LOAD_CAP_MAX = 100_000_000

Axis = Literal["np", "rate", "message_bytes", "partitions", "consumer_groups"]

Latency = Annotated[float, Number(0, 600_000, "milliseconds", above=True)]


class Indicators(ConfigModel):
    """Thresholds beyond which a trial is OVERLOADED.

    Attributes:
        request_handler_idle_min: lowest idle fraction of any broker's handlers [ratio].
        isr_changed_share_max: share of samples with ISR changes or under-replicated
            partitions that is still sustained [ratio].
        achieved_min: achieved over offered [ratio].
        network_idle_min: lowest idle fraction of any network thread [ratio].
        latency_p50_ms_max, latency_p95_ms_max, latency_p99_ms_max, latency_p999_ms_max:
            produce latency from the intended send time [ms].
        request_queue_max: most waiting requests of any broker.
        request_queue_share_max: the same as a share of the broker's queued.max.requests
            [ratio].
        consumer_lag_growth_max: growth of any consumer group's lag over the offered
            messages [ratio].

    All but the first three are off unless given.
    """

    request_handler_idle_min: Annotated[float, Number(0, 1, below=True)] = 0.20
    isr_changed_share_max: Annotated[float, Number(0, 1)] = 0.5
    achieved_min: Annotated[float, Number(0, 1, above=True)] = 0.99
    network_idle_min: Annotated[float, Number(0, 1, below=True)] | None = None
    latency_p50_ms_max: Latency | None = None
    latency_p95_ms_max: Latency | None = None
    latency_p99_ms_max: Latency | None = None
    latency_p999_ms_max: Latency | None = None
    request_queue_max: Annotated[float, Number(0, 100_000, "requests")] | None = None
    request_queue_share_max: Annotated[float, Number(0, 1, above=True)] | None = None
    consumer_lag_growth_max: Annotated[float, Number(0, 1)] | None = None


class Validity(ConfigModel):
    """Thresholds beyond which a trial is INVALID, which is no answer.

    Attributes:
        missed_samples_max: share of a broker's samples that may be missing [ratio].
        generator_share_max: share of a shortfall that may be the generator's own [ratio].
        loop_busy_max: share of time that a task's event loop may be busy before a shortfall
            is called the generator's own [ratio].
        throttle_ms_max: mean throttle time of produce requests [ms].
    """

    missed_samples_max: Annotated[float, Number(0, 1, below=True)] = 0.25
    generator_share_max: Annotated[float, Number(0, 1)] = 0.5
    loop_busy_max: Annotated[float, Number(0, 1, above=True)] = 0.95
    throttle_ms_max: Annotated[float, Number(0, 60_000, "milliseconds")] = 0.0


class Guards(ConfigModel):
    """What stops a run, with exit code 5 and all topics of the run deleted.

    Attributes:
        other_topics: stop when a topic that the run did not make becomes under-replicated.
        disk_free_bytes_min: room that every log directory of the brokers must keep [B].
        disk_used_share_max: share of every log directory's volume that may be used [ratio].
        load_bytes_per_s_max: payload that all producers together may offer [B/s].
        np_max: producers that a trial may have.
        write_bytes_max: payload that a run may write, all replicas and the warm-up
            counted [B].

    The last four are off unless given. Brokers tell their disks from Kafka 3.3 on.
    """

    other_topics: bool = True
    disk_free_bytes_min: Annotated[int, Whole(0, 10**18, "bytes")] = 1_000_000_000
    disk_used_share_max: Annotated[float, Number(0, 1, above=True)] | None = None
    load_bytes_per_s_max: (
        Annotated[float, Number(0, 10**15, "bytes per second", above=True)] | None
    ) = None
    np_max: Annotated[int, Whole(1, 100_000, "producers")] | None = None
    write_bytes_max: Annotated[int, Whole(1, 10**18, "bytes")] | None = None


class Budget(ConfigModel):
    """What a run may cost at most; each is off unless given.

    A trial is started only while all of them have something left.

    Attributes:
        trials: trials of all message sizes together.
        duration_s: time in trials [s].
        payload_bytes: payload offered in trials, replicas not counted [B].
    """

    trials: Annotated[int, Whole(1, 1_000_000, "trials")] | None = None
    duration_s: Annotated[float, Number(0, 31_536_000, "seconds", above=True)] | None = None
    payload_bytes: Annotated[int, Whole(1, 10**18, "bytes")] | None = None


class Search(ConfigModel):
    """Bounds and patience of the search.

    Attributes:
        axis: what is searched along, the rest of the traffic pattern being fixed: "np",
            the number of producers; "rate", records per second of each producer;
            "message_bytes"; "partitions", of each broker; "consumer_groups".
        load_start_max: first guess of a load above the limit; raised while sustained.
        load_cap: no load above this is ever offered.
        resolution: relative width at which a bracket is a boundary point [ratio].
        invalid_repeats_max: how often in a row an INVALID trial is repeated.
        method: "guided" by the trials' readings and by the sizes before, or plain
            "bisection", for comparison.
        refine_max: message sizes that may be added where the boundary line bends.
        budget: what all trials may cost.
    """

    axis: Axis = "np"
    load_start_max: Annotated[int, Whole(1, LOAD_CAP_MAX)] = 128
    load_cap: Annotated[int, Whole(1, LOAD_CAP_MAX)] = 20_000
    resolution: Annotated[float, Number(0, 0.5, above=True)] = 0.05
    invalid_repeats_max: Annotated[int, Whole(0, 20, "repeats")] = 3
    method: Literal["guided", "bisection"] = "guided"
    refine_max: Annotated[int, Whole(0, 20, "sizes")] = 0
    budget: Budget = Budget()

    @model_validator(mode="after")
    def _start_below_cap(self) -> Search:
        if self.load_start_max > self.load_cap:
            raise ValueError(
                f"load_start_max is {self.load_start_max} and load_cap {self.load_cap}; expected "
                "a start no higher than the cap; lower load_start_max or raise load_cap"
            )
        return self


class Goal(ConfigModel):
    """When to call a load sustained, and when to stop looking.

    Attributes:
        name: the file's name without .yaml unless the file says another.
        description: a sentence for people.
    """

    name: Name
    description: str = ""
    indicators: Indicators = Indicators()
    validity: Validity = Validity()
    guards: Guards = Guards()
    search: Search = Search()

    @property
    def thresholds(self) -> Thresholds:
        """The goal's limits as the judge takes them."""
        return Thresholds(
            thresholds.Indicators(**self.indicators.model_dump()),
            thresholds.Validity(**self.validity.model_dump()),
        )
