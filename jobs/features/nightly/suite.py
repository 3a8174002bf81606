"""A suite: the cases that each night measures, and the definition of a regression."""

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

ComparedFigure = Literal["handlers", "latency_p99", "achieved"]
LIMIT, LOAD = "limit", "load"
Bytes = Annotated[int, Whole(1, MESSAGE_BYTES_MAX, "bytes")]


_FORMS = (
    ("limit",),
    ("message_bytes", "np"),
    ("message_bytes", "share"),
    ("mix: limit",),
    ("mix: load", "scale"),
    ("mix: load", "share"),
)
"""The permitted combinations of keys in a case, without `name` and without keys that have defaults.
"""


class SuiteCase(ConfigModel):
    """One case of a suite: the search of a limit, or trials at a fixed load.

    Attributes:
        name: name of the case in tables and reports.
        limit: message size whose limit is searched [B]; cannot be combined with `message_bytes`,
            `np` or `share`.
        message_bytes: message size of a fixed load [B], with `np` or `share`.
        np: number of producers of the fixed load.
        share: the fixed load as a share of a limit [ratio], instead of `np`. The first measurement
            of the case multiplies `share` by the newest limit at this message size. Later nights
            offer the load of this first measurement.
        mix: replaces the message size if the workload of the suite is a mix. "limit" searches for
            the highest scale that the cluster sustains; "load" offers the mix at the fixed load
            that `scale` or `share` states.
        scale: the fixed load of a mix, as the factor by which all rates of the mix are multiplied
            [ratio].
        repeats: number of valid trials at the fixed load. The figure of the case is the median over
            the valid trials.
        compares: the figure of a fixed load that is compared between nights. "handlers": the busy
            time of the brokers' request handlers per MB. "latency_p99": the 99th percentile of the
            latency. "achieved": the acknowledged share of the offered load.
        noise: the assumed noise of this case; the default is the noise of the suite.
    """

    name: Name
    limit: Bytes | None = None
    message_bytes: Bytes | None = None
    np: Annotated[int, Whole(1, 100_000, "producers")] | None = None
    share: Annotated[float, Number(0, 1.5, above=True)] | None = None
    mix: Literal["limit", "load"] | None = None
    scale: Annotated[float, Number(0, 1_000, above=True)] | None = None
    repeats: Annotated[int, Whole(1, 100, "trials")] = 3
    compares: ComparedFigure = "handlers"
    noise: Annotated[Noise, FileSection()] | None = None

    @property
    def kind(self) -> str:
        """The name of the measurement: `limit` or `load`."""
        return self.mix or (LOAD if self.limit is None else LIMIT)

    @property
    def size(self) -> int | None:
        """The message size of the case [B]; None for a mix."""
        return self.message_bytes if self.limit is None else self.limit

    @property
    def held(self) -> int | None:
        """The fixed load from `np` [producers] or from `scale` [% of the mix]; None if the case
        states neither `np` nor `scale`.
        """
        return self.np if self.scale is None else max(1, round(SCALE_UNITS * self.scale))

    @model_validator(mode="after")
    def _has_one_form(self) -> SuiteCase:
        given = tuple(
            f"mix: {self.mix}" if key == "mix" else key
            for key in ("limit", "message_bytes", "np", "mix", "scale", "share")
            if getattr(self, key) is not None
        )
        if given not in _FORMS:
            forms = ", or ".join(" with ".join(each) for each in _FORMS)
            raise ValueError(
                f"case {self.name} has {' and '.join(given) or 'no load'}; expected {forms}; "
                "correct the case"
            )
        return self


class Suite(ConfigModel):
    """The cases that `redline nightly` measures, and the rule that judges their figures.

    Attributes:
        name: the name of the suite (default: the file's name without .yaml). A history is
            identified by the name of the suite and the name of the case.
        description: a sentence for people.
        cluster: the brokers; `--cluster` replaces it.
        workload: the traffic pattern. Each case states a message size, unless the workload is a
            mix.
        goal: exactly one goal. The search runs along np, or along scale for a mix.
        set: overrides, as with `--set`. They override keys of the cluster, the workload and the
            goal. `--set` on the command line takes precedence.
        budget_s: time budget of a night [s]. A case starts only if it is expected to end within the
            time budget. `--budget-s` replaces `budget_s`.
        min_effect: smallest loss that counts as a regression, and smallest gain that counts as an
            improvement [share].
        history_max: maximum number of earlier nights from which the mean and the spread are
            computed. If there are more earlier nights, only the newest are used. The test for a
            slow loss, which is a small loss in each night, also uses older nights.
        history_since: nights before this time (UTC) are ignored. Set `history_since` to accept a
            change permanently.
        noise: the assumed noise between nights; a case can replace it by its own key `noise`.
        cases: the cases, in the order of their measurement.
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
                f"cases has {twice[0]} more than once; expected each name and each limit once; "
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
                "one of the two in all cases, because all cases have the same workload; write two "
                "suites"
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
        """`history_since` as a time [s since the epoch]; 0 if all nights count."""
        if self.history_since is None:
            return 0.0
        at = datetime.fromisoformat(self.history_since)
        return at.replace(tzinfo=timezone.utc).timestamp()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The message sizes of all cases without repetition [B]; empty for a mix."""
        return tuple(dict.fromkeys(case.size for case in self.cases if case.size is not None))


def load_suite(name_or_path: str) -> Suite:
    """Read a suite.

    Args:
        name_or_path: the name of a file in conf/suites/ without .yaml, or the path of a file.

    Raises:
        ConfigError: the file cannot be read, or is invalid. The message states the place in the
            file.
    """
    return load_model("suites", name_or_path, "--suite", Suite)[0]


def configuration_of(
    suite: Suite, cluster: str | None = None, overrides: Sequence[str] = ()
) -> Configuration:
    """The cluster, the workload and the goal of a suite, with the message sizes of all cases.

    Args:
        cluster: a cluster that replaces the cluster of the suite; None to keep it.
        overrides: `--set` options, which take precedence over the key `set` of the suite.

    Raises:
        ConfigError: a file is invalid, or the goal is not suitable for a suite.
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
            f"one goal that searches along {axis.name}; name another goal"
        )
    return config
