"""A suite: the cases that are measured every night, and the rule for regressions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from jobs.config.base import ConfigModel, FileSection, Name
from jobs.config.cluster import DEFAULT_CLUSTER
from jobs.config.files import read_conf
from jobs.config.loading import Configuration, load
from jobs.config.problems import config_error
from jobs.config.source import parse_map
from metrics.common.bounds import Number, Text, Whole
from metrics.common.errors import ConfigError
from metrics.comparing.nightly import Noise
from metrics.traffic.sizes import MESSAGE_BYTES_MAX

Measure = Literal["handlers", "latency_p99", "achieved"]
LIMIT, LOAD = "limit", "load"
Bytes = Annotated[int, Whole(1, MESSAGE_BYTES_MAX, "bytes")]
Conf = Annotated[str, Text(r"\S.*", "the name of a file of conf, or a path")]


class Case(ConfigModel):
    """One figure of a night: a boundary point, or trials at a fixed load.

    Attributes:
        name: name of the case in histories and reports.
        limit: message size of the boundary point to search for [B]; without a fixed load.
        message_bytes: message size of a fixed load [B].
        np: number of producers of the fixed load.
        share: the fixed load as a share of a limit, instead of np [ratio]. The limit is the last
            one at this size that was known when the case was first measured.
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
    repeats: Annotated[int, Whole(1, 100, "trials")] = 3
    compares: Measure = "handlers"
    noise: Annotated[Noise, FileSection()] | None = None

    @property
    def kind(self) -> str:
        """The measurement of the case, by its name: `limit` or `load`."""
        return LOAD if self.limit is None else LIMIT

    @property
    def size(self) -> int:
        """The message size of the case [B]."""
        found = self.limit if self.limit is not None else self.message_bytes
        assert found is not None, "checked by _is_one_kind"
        return found

    @model_validator(mode="after")
    def _is_one_kind(self) -> Case:
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


class Suite(ConfigModel):
    """The cases that `redline nightly` measures, and the rule that judges their changes.

    Attributes:
        name: the file's name without .yaml unless the file states another; together with the
            name of a case it names a history.
        description: a sentence for people.
        cluster, workload, goal: the name of a file of conf, or a path.
        set: overrides of their keys, as with --set.
        budget_s: a case starts only if it would end within this time from the start [s].
        min_effect: smallest loss that is a regression [share].
        history_max: number of earlier nights that count, the newest first.
        history_since: start of the nights that count, YYYY-MM-DD or with a time (UTC); set it to
            accept a change permanently.
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
    cases: Annotated[tuple[Case, ...], Field(strict=False, min_length=1, max_length=100)]

    @model_validator(mode="after")
    def _cases_differ(self) -> Suite:
        names = [case.name for case in self.cases]
        sizes = [case.limit for case in self.cases if case.limit is not None]
        twice = [each for each in (*names, *sizes) if (*names, *sizes).count(each) > 1]
        if twice:
            raise ValueError(
                f"cases holds {twice[0]} more than once; expected each name and each limit once; "
                "rename or remove the repetition"
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
        """The message sizes of all cases, each once [B]."""
        return tuple(dict.fromkeys(case.size for case in self.cases))

    def noise_of(self, case: Case) -> Noise:
        """The stated noise of a case."""
        return case.noise or self.noise


def load_suite(name_or_path: str) -> Suite:
    """Read a suite.

    Args:
        name_or_path: a file of conf/suites/ by its name without .yaml, or a path.

    Raises:
        ConfigError: the file cannot be read or is wrong; the message states the place.
    """
    file = read_conf("suites", name_or_path, "--suite")
    source = parse_map(file.text, file.label)
    source.data.setdefault("name", file.stem)
    try:
        return Suite.model_validate(source.data)
    except ValidationError as error:
        raise config_error(error, source, Suite) from None


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
    given = (*suite.set, *overrides, f"workload.message_bytes={list(suite.sizes)}")
    config = load(cluster or suite.cluster, suite.workload, suite.goal, given)
    if len(config.goals) > 1 or config.goal.search.axis != "np":
        raise ConfigError(
            f"suite {suite.name} has goal {suite.goal}, along {config.goal.search.axis}; expected "
            "one goal that searches along np; name another"
        )
    return config


def producers_at(share: float, np_sustained: int) -> int:
    """The number of producers for a share of a limit, at least 1."""
    return max(1, math.floor(share * np_sustained))
