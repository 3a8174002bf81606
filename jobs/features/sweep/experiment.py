"""An experiment's file: the keys that a sweep varies, its cases, and the figure of each case."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from jobs.config.base import ConfigModel, FileSection, Name
from jobs.config.cluster import DEFAULT_CLUSTER
from jobs.config.files import Conf
from metrics.common.bounds import Number, UnexpectedError, Whole
from metrics.features.sweep.findings import CaseSettings, Claim

CASES_MAX = 200
"""Largest number of cases of an experiment."""
NAME = "name"
"""The key of a listed case for its name, beside its settings."""


def _as_values(value: Any) -> Any:
    """The values of an axis, at least two and each once."""
    texts = [json.dumps(each) for each in value] if isinstance(value, list | tuple) else []
    if len(texts) < 2 or len(set(texts)) < len(texts) or any(each is None for each in value):
        raise UnexpectedError("a list of two values or more, each once, such as [1, all]")
    return tuple(value)


Values = Annotated[tuple[Any, ...], BeforeValidator(_as_values)]
Settings = Annotated[Mapping[str, Any], CaseSettings()]


class Experiment(ConfigModel):
    """An experiment for `redline sweep`.

    Attributes:
        name: the file's name without .yaml unless the file states another.
        description: the question, a sentence for people.
        published: the result of a published study, for people; empty where there is none.
        claims: the published claims, each of which a sweep holds against its figures.
        asks: the measurement of each case: "limit", the highest sustained load, by a search;
            "load", the readings at a fixed load; "fill", the time to write the workload's volume;
            "drain", the time in which consumer groups read it from the start; "failover", the
            time until every leader serves again after a broker of a testbed was killed under load;
            or the name of a measurement that an installed package adds.
        cluster, workload, goal: the name of a file of conf, or a path.
        set: overrides of their keys in all cases, as with --set.
        quick: further overrides, with --quick, that make the experiment short.
        quick_axes: fewer values of some axes, with --quick.
        quick_repeats: replaces `repeats`, with --quick.
        axes: the full path of each key that varies, as in --set, and its values.
        combine: "grid", each value with each value of the other axes; "one at a time", each value
            with the first values of the other axes.
        cases: the settings of each case, instead of axes, with the same keys in all of them; a
            `name` stands for several settings that belong together.
        cold: whether a testbed's machine drops the page cache of the volume before it is read, for
            "drain".
        load: the fixed load on the goal's axis; required unless asks is "limit".
        trials: number of trials of each case and repeat, for "load".
        repeats: number of measurements of each case; all other cases come between two of them.
        seed: seed of the order of the cases.
        budget_s: a case starts only if it would end within this time from the start [s].
    """

    name: Name
    description: str = ""
    published: str = ""
    claims: Annotated[tuple[Annotated[Claim, FileSection()], ...], Field(strict=False)] = ()
    asks: Name = "limit"
    cluster: Conf = DEFAULT_CLUSTER
    workload: Conf = "1kB"
    goal: Conf = "default"
    set: Annotated[tuple[str, ...], Field(strict=False)] = ()
    quick: Annotated[tuple[str, ...], Field(strict=False)] = ()
    quick_axes: Mapping[str, Values] = Field(default_factory=dict)
    quick_repeats: Annotated[int, Whole(1, 100, "repeats")] = 1
    axes: Mapping[str, Values] = Field(default_factory=dict)
    combine: Literal["grid", "one at a time"] = "grid"
    cases: Annotated[tuple[Settings, ...], Field(strict=False)] = ()
    cold: bool = False
    load: Annotated[int, Whole(1, 10_000_000, "on the goal's axis")] | None = None
    trials: Annotated[int, Whole(1, 100, "trials")] = 1
    repeats: Annotated[int, Whole(1, 100, "repeats")] = 1
    seed: int = 1
    budget_s: Annotated[float, Number(0, 604_800, "seconds", above=True)] | None = None

    @model_validator(mode="after")
    def _varies_in_one_way(self) -> Experiment:
        if bool(self.axes) == bool(self.cases):
            given = "both axes and cases" if self.axes else "neither axes nor cases"
            raise ValueError(f"there are {given}; expected one of them; correct it")
        for key, values in self.quick_axes.items():
            others = [each for each in values if each not in self.axes.get(key, ())]
            if key not in self.axes or others:
                raise ValueError(
                    f"quick_axes has {key}: {list(values)}; expected some of the values that axes "
                    f"has of it, {list(self.axes.get(key, ()))}; correct it"
                )
        keys = {frozenset(each) for each in self.cases}
        if len(keys) > 1 or keys & {frozenset(), frozenset({NAME})}:
            raise ValueError(
                "cases do not set the same keys, or none; expected the same keys in each case, so "
                "that the cases can be compared; complete them"
            )
        if len(self.settings) > CASES_MAX:
            raise ValueError(
                f"there are {len(self.settings):,} cases; expected at most {CASES_MAX}; take fewer "
                "values, or combine: one at a time"
            )
        return self

    @model_validator(mode="after")
    def _names_are_unique(self) -> Experiment:
        unnamed = [each[NAME] for each in self.cases if NAME in each and not each[NAME]]
        if unnamed:
            raise ValueError(f"a case has the name {unnamed[0]!r}; expected a text; write one")
        if len(set(self.names)) < len(self.names):
            raise ValueError("two cases have the same name; expected unique names; change one")
        if self.names and len(self.settings) < len(self.names):
            raise ValueError("two cases have the same settings; expected each once; remove one")
        return self

    @property
    def varied(self) -> tuple[str, ...]:
        """The full paths of the keys that vary, in the order of the file."""
        return tuple(self.axes or (key for key in self.cases[0] if key != NAME))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the listed cases; empty where they have none."""
        return tuple(str(each[NAME]) for each in self.cases if NAME in each)

    @property
    def settings(self) -> tuple[dict[str, Any], ...]:
        """Full path → value for each case, each case once."""
        if self.cases:
            found = [{k: each[k] for k in each if k != NAME} for each in self.cases]
        elif self.combine == "grid":
            values = itertools.product(*self.axes.values())
            found = [dict(zip(self.axes, each, strict=True)) for each in values]
        else:
            base = {key: values[0] for key, values in self.axes.items()}
            changed = ({**base, k: v} for k, values in self.axes.items() for v in values[1:])
            found = [base, *changed]
        unique = {json.dumps(each, sort_keys=True): each for each in found}
        return tuple(unique.values())
