"""What counts as sustained, what makes a trial invalid, and how finely to search."""

from __future__ import annotations

from typing import Annotated

from pydantic import model_validator

from jobs.config.base import ConfigModel, Name, Number, Whole

NP_CAP_MAX = 100_000


class Indicators(ConfigModel):
    """Thresholds beyond which a trial is OVERLOADED.

    Attributes:
        request_handler_idle_min: lowest idle fraction of any broker's handlers [ratio].
        isr_changed_share_max: share of samples with ISR changes or under-replicated
            partitions that is still sustained [ratio].
        achieved_min: achieved over offered [ratio].
    """

    request_handler_idle_min: Annotated[float, Number(0, 1, below=True)] = 0.20
    isr_changed_share_max: Annotated[float, Number(0, 1)] = 0.5
    achieved_min: Annotated[float, Number(0, 1, above=True)] = 0.99


class Validity(ConfigModel):
    """Thresholds beyond which a trial is INVALID, which is no answer.

    Attributes:
        missed_samples_max: share of a broker's samples that may be missing [ratio].
    """

    missed_samples_max: Annotated[float, Number(0, 1, below=True)] = 0.1


class Search(ConfigModel):
    """Bounds and patience of the search on np.

    Attributes:
        np_start_max: first guess of an np above the limit; raised while sustained.
        np_cap: no np above this is ever offered.
        resolution: relative width at which a bracket is a boundary point [ratio].
        invalid_repeats_max: how often in a row an INVALID trial is repeated.
    """

    np_start_max: Annotated[int, Whole(1, NP_CAP_MAX, "producers")] = 128
    np_cap: Annotated[int, Whole(1, NP_CAP_MAX, "producers")] = 20_000
    resolution: Annotated[float, Number(0, 0.5, above=True)] = 0.05
    invalid_repeats_max: Annotated[int, Whole(0, 20, "repeats")] = 3

    @model_validator(mode="after")
    def _start_below_cap(self) -> Search:
        if self.np_start_max > self.np_cap:
            raise ValueError(
                f"np_start_max is {self.np_start_max} and np_cap {self.np_cap}; expected a start "
                "no higher than the cap; lower np_start_max or raise np_cap"
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
    search: Search = Search()
