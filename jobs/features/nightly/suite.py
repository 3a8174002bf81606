"""A suite: the cases that are measured every night, and the rule for regressions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Annotated, Literal

from pydantic import Field, model_validator

from jobs.config.base import ConfigModel, FileSection, Name
from jobs.config.cluster import DEFAULT_CLUSTER
from jobs.config.files import Conf, load_model
from jobs.config.loading import Configuration, load, load_workload
from metrics.common.bounds import Number, Text, Whole
from metrics.common.errors import ConfigError
from metrics.features.nightly.judging import Noise
from metrics.traffic.axes import NP, SCALE
from metrics.traffic.mix import SCALE_UNITS
from metrics.traffic.payload import MESSAGE_BYTES_MAX

Measure = Literal["handlers", "latency_p99", "achieved"]
LIMIT, LOAD = "limit", "load"
Bytes = Annotated[int, Whole(1, MESSAGE_BYTES_MAX, "bytes")]


class SuiteCase(ConfigModel):
    """One figure of a night: a boundary point, or trials at a fixed load.

    Attributes:
        name: name of the case in histories and reports.
        limit: message size of the boundary point to search for [B]; without the next three keys.
        message_bytes: message size of a fixed load [B], with `np` or `share`.
        np: number of producers of the fixed load.
        share: the fixed load as a share of a limit, instead of `np` [ratio]: the last limit at this
            size that was known when the case was first measured. Later nights have the same load.
        mix: for a suite whose workload is a mix, instead of message sizes: "limit" searches how
            many times the mix is sustained, "load" holds it at `scale` or `share`.
        scale: how many times the mix is held [ratio].
        repeats: number of valid trials at the fixed load; their median counts.
        compares: the compared reading of a fixed load: "handlers", the busy time of the brokers'
            request handlers for a MB; "latency_p99"; "achieved", the achieved share of the
            offered load.
        noise: noise of this case, where it differs from that of the suite.
    """

    name: Name
    limit: Bytes | None = None
    message_bytes: Bytes | None = None
    np: Annotated[int, Whole(1, 100_000, "producers")] | None = None
    share: Annotated[float, Number(0, 1.5, above=True)] | None = None
    mix: Literal["limit", "load"] | None = None
    scale: Annotated[float, Number(0, 1_000, above=True)] | None = None
    repeats: Annotated[int, Whole(1, 100, "trials")] = 3
    compares: Measure = "handlers"
    noise: Annotated[Noise, FileSection()] | None = None

    @property
    def kind(self) -> str:
        """The measurement of the case, by its name: `limit` or `load`."""
        return self.mix or (LOAD if self.limit is None else LIMIT)

    @property
    def size(self) -> int | None:
        """The message size of the case; None for a mix [B]."""
        return self.message_bytes if self.limit is None else self.limit

    @property
    def held(self) -> int | None:
        """The load to hold, in producers or in percent of a mix; None where it is a share."""
        return self.np if self.scale is None else max(1, round(SCALE_UNITS * self.scale))

    @model_validator(mode="after")
    def _is_one_kind(self) -> SuiteCase:
        if self.mix is not None:
            self._require_mix()
            return self
        if self.scale is not None:
            raise ValueError(
                f"case {self.name} has scale and no mix; expected mix: load, as a scale counts how "
                "many times a mix; add it, or state message_bytes with np or share"
            )
        given = [each for each in ("message_bytes", "np", "share") if getattr(self, each)]
        if self.limit is not None and given:
            raise ValueError(
                f"case {self.name} has limit and {', '.join(given)}; expected either limit (a "
                "message size to search the limit of) or message_bytes with np or share (a load "
                "to hold); leave one out"
            )
        if self.limit is None and given not in (
            ["message_bytes", "np"],
            ["message_bytes", "share"],
        ):
            raise ValueError(
                f"case {self.name} has {', '.join(given) or 'no load'}; expected limit: BYTES, or "
                "message_bytes with one of np and share; correct it"
            )
        return self

    def _require_mix(self) -> None:
        of_sizes = [each for each in ("limit", "message_bytes", "np") if getattr(self, each)]
        if of_sizes:
            raise ValueError(
                f"case {self.name} has mix and {', '.join(of_sizes)}; expected only scale or share "
                "beside mix, as parts have their own sizes and producers; remove "
                f"{', '.join(of_sizes)}"
            )
        given = [each for each in ("scale", "share") if getattr(self, each)]
        if len(given) != (1 if self.mix == LOAD else 0):
            raise ValueError(
                f"case {self.name} has mix: {self.mix} and {' and '.join(given) or 'no load'}; "
                "expected one of scale and share with mix: load, and neither with mix: limit; "
                "correct it"
            )


class Suite(ConfigModel):
    """The cases that `redline nightly` measures, and the rule that judges their changes.

    Attributes:
        name: the name of the suite; together with the name of a case it names a history. The file's
            name without .yaml when left out.
        description: a sentence for people.
        cluster: the brokers; `--cluster` replaces it.
        workload: the traffic pattern; each case states its message size, except in a mix.
        goal: one goal, which searches along np, or along scale for a mix.
        set: overrides of the keys of cluster, workload and goal; `--set` takes precedence over
            them.
        budget_s: a case starts only if it would end within this time from the start [s];
            `--budget-s` replaces it.
        min_effect: smallest loss that is a regression, and smallest gain that is an improvement
            [share].
        history_max: number of earlier nights in the mean and the spread, the newest first; a slow
            loss goes back to the first nights.
        history_since: start of the nights that count (UTC); set it to accept a change permanently.
        noise: noise of the cases that do not state their own.
        cases: the cases in the order in which they are measured.
    """

    name: Name
    description: str = ""
    cluster: Conf = DEFAULT_CLUSTER
    workload: Conf = "demo"
    goal: Conf = "default"
    set: Annotated[tuple[str, ...], Field(strict=False)] = ()
    budget_s: Annotated[float, Number(0, 604_800, "seconds", above=True)] | None = None
    min_effect: Annotated[float, Number(0, 1, below=True)] = 0.05
    history_max: Annotated[int, Whole(1, 1_000, "nights")] = 30
    history_since: (
        Annotated[
            str,
            Text(
                r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?)?",
                'a date in quotes, such as "2026-11-21", or with a time, "2026-11-21T04:00"',
            ),
        ]
        | None
    ) = None
    noise: Annotated[Noise, FileSection()] = Noise()
    cases: Annotated[tuple[SuiteCase, ...], Field(strict=False, min_length=1, max_length=100)]

    @model_validator(mode="after")
    def _cases_differ(self) -> Suite:
        names = [case.name for case in self.cases]
        limits = [case for case in self.cases if case.kind == LIMIT]
        sizes = [case.limit or "the limit of the mix" for case in limits]
        twice = [each for each in (*names, *sizes) if (*names, *sizes).count(each) > 1]
        if twice:
            raise ValueError(
                f"cases holds {twice[0]} more than once; expected each name and each limit once; "
                "rename or remove the repetition"
            )
        return self

    @model_validator(mode="after")
    def _cases_suit_one_workload(self) -> Suite:
        of_mix = [case.name for case in self.cases if case.mix is not None]
        others = [case.name for case in self.cases if case.mix is None]
        if of_mix and others:
            raise ValueError(
                f"cases has {of_mix[0]} with mix and {others[0]} with a message size; expected "
                "either in all cases, as they share one workload; make a suite of each"
            )
        return self

    @model_validator(mode="after")
    def _since_is_a_time(self) -> Suite:
        try:
            _ = self.since_s
        except ValueError:
            raise ValueError(
                f"history_since is {self.history_since}, which is not a date; expected a date in "
                'quotes, such as "2026-11-21"; correct it'
            ) from None
        return self

    @property
    def since_s(self) -> float:
        """`history_since` [s since the epoch]; 0 when every night counts."""
        if self.history_since is None:
            return 0.0
        at = datetime.fromisoformat(self.history_since)
        return at.replace(tzinfo=timezone.utc).timestamp()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The message sizes of all cases, each once; none for a mix [B]."""
        return tuple(dict.fromkeys(case.size for case in self.cases if case.size is not None))

    def noise_of(self, case: SuiteCase) -> Noise:
        """The stated noise of a case."""
        return case.noise or self.noise


def load_suite(name_or_path: str) -> Suite:
    """Read a suite.

    Args:
        name_or_path: a file of conf/suites/ by its name without .yaml, or a path.

    Raises:
        ConfigError: the file cannot be read or is wrong; the message states the place.
    """
    return load_model("suites", name_or_path, "--suite", Suite)[0]


def configuration_of(
    suite: Suite, cluster: str | None = None, overrides: Sequence[str] = ()
) -> Configuration:
    """The cluster, workload and goal of a suite, with the sizes of its cases.

    Args:
        cluster: replaces the cluster of the suite.
        overrides: `--set` options, which take precedence over those of the suite.

    Raises:
        ConfigError: a file is wrong, or the goal is not suitable for a suite.
    """
    given = (*suite.set, *overrides)
    is_mix = load_workload(suite.workload, given).mix is not None
    if is_mix != (not suite.sizes):
        workload = f"workload {suite.workload} is {'a' if is_mix else 'not a'} mix"
        expected = "mix: limit or mix: load" if is_mix else "cases with a message size"
        raise ConfigError(
            f"suite {suite.name} has cases {'with a message size' if is_mix else 'of a mix'} and "
            f"{workload}; expected {expected}; correct the cases, or name another workload"
        )
    if suite.sizes:
        given = (*given, f"workload.message_bytes={list(suite.sizes)}")
    config = load(cluster or suite.cluster, suite.workload, suite.goal, given)
    axis = SCALE if is_mix else NP
    if len(config.goals) > 1 or config.axis is not axis:
        raise ConfigError(
            f"suite {suite.name} has goal {suite.goal}, along {config.goal.search.axis}; expected "
            f"one goal that searches along {axis.name}; name another"
        )
    return config
