"""What counts as sustained, what makes a trial invalid, and how finely to search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import model_validator

from jobs.config.base import ConfigModel, FileSection, Name
from metrics.common.bounds import Choice, Number, Whole
from metrics.judging.thresholds import Indicators, Thresholds, Validity
from metrics.traffic.axes import AXES, NP
from search.budget import Budget

LOAD_CAP_MAX = 100_000_000
WIDEST_INTERVAL = 4.0
"""How many times as wide as the resolution an interval may be where the goal does not say."""


class GuardLimits(ConfigModel):
    """What stops a run, with exit code 5 and all topics of the run deleted.

    Attributes:
        other_topics: stop when a topic that the run did not make becomes under-replicated.
        disk_free_bytes_min: room that every log directory of the brokers must keep [B].
        disk_used_share_max: share of every log directory's volume that may be used [ratio]; 0.9
            where it is not given and the cluster may have other users.
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


@dataclass(frozen=True)
class BudgetOptions(Budget):
    """What all trials of a run may cost; see `search.budget.Budget`.

    A trial starts only while all of them have something left, so the last one may overrun time
    and payload by its own share.

    Attributes:
        trials: trials of all message sizes together; unlimited unless given.
        duration_s: time in trials; unlimited unless given [s].
        payload_bytes: payload offered in trials, replicas not counted; unlimited unless given [B].
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
        confirm_s: for how long a limit that was found is held before it is an answer [s];
            off unless given.
        brokers_offline: brokers that are taken away on purpose once all limits are found, to
            find the limits of the rest, and what they carry while the others catch up.
        budget: what all trials may cost.
        interval_max: relative width of a limit's 90 % interval above which the size is
            measured further, and if that does not help is called doubtful; 1 is never; None
            is four times the resolution [ratio].
        interval_required: a run with a doubtful limit ends without a conclusion.
    """

    axis: Annotated[str, Choice(tuple(AXES))] = NP.name
    load_start_max: Annotated[int, Whole(1, LOAD_CAP_MAX)] = 128
    load_cap: Annotated[int, Whole(1, LOAD_CAP_MAX)] = 20_000
    resolution: Annotated[float, Number(0, 0.5, above=True)] = 0.05
    invalid_repeats_max: Annotated[int, Whole(0, 20, "repeats")] = 3
    method: Literal["guided", "bisection"] = "guided"
    refine_max: Annotated[int, Whole(0, 20, "sizes")] = 0
    confirm_s: Annotated[float, Number(0, 31_536_000, "seconds", above=True)] | None = None
    brokers_offline: Annotated[int, Whole(1, 100, "brokers")] | None = None
    budget: Annotated[BudgetOptions, FileSection()] = BudgetOptions()
    interval_max: Annotated[float, Number(0, 1, above=True)] | None = None
    interval_required: bool = False

    @property
    def widest_interval(self) -> float | None:
        """`interval_max` as it counts; None where an interval of any width is an answer [ratio]."""
        width = self.interval_max or WIDEST_INTERVAL * self.resolution
        return width if width < 1.0 else None

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
    indicators: Annotated[Indicators, FileSection()] = Indicators()
    validity: Annotated[Validity, FileSection()] = Validity()
    guards: GuardLimits = GuardLimits()
    search: Search = Search()

    @property
    def thresholds(self) -> Thresholds:
        """The goal's limits as the judge takes them."""
        return Thresholds(self.indicators, self.validity)
