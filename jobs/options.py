"""Options that several jobs have, so that they are called and explained alike."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from jobs.config.loading import available, load_cluster
from jobs.runs.asked import Asked
from search.errors import ConfigError

Command = TypeVar("Command", bound=Callable[..., Any])

USUAL_WORKLOAD = "demo"
"""Of a testbed."""

COUNT_MAX = 1_000_000_000
"""More of anything that an option counts is a slip of the hand."""

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def duration_s(text: str) -> float:
    """A time with its unit, such as 90s, 30m or 1.5h [s].

    Raises:
        ConfigError: it is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if found is None or not float(found[1]):
        raise ConfigError(
            f"{text!r} is no time; expected a number above 0 and s, m or h, such as 30m"
        )
    return float(found[1]) * _SECONDS[found[2]]


class Lasting(click.ParamType):  # type: ignore[type-arg]  # not generic in older versions
    """How long something lasts: a number of seconds, or a time with its unit such as 8h."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds; refuses what is no time, or none that ends."""
        text = str(value).strip()
        try:
            seconds = float(text)
        except ValueError:
            return duration_s(text)
        if not 0 < seconds < math.inf:
            self.fail(f"{value!r} is no time above 0.", param, ctx)
        return seconds


class Amount(click.FloatRange):
    """A finite number in a range."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number; refuses nan and the infinities, which compare with nothing."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number.", param, ctx)
        return number


class RunId(click.ParamType):  # type: ignore[type-arg]  # not generic in older versions
    """The id of a run, a sweep or a comparison, which names its folder and its rows."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The id; refuses what could be a path or a part of a query."""
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}", str(value)) is None:
            self.fail(
                f"{value!r} is no id of a run: expected letters, digits, dots, dashes and "
                "underscores, such as 20261122-210000-ab12.",
                param,
                ctx,
            )
        return str(value)


_CLUSTER = click.option(
    "--cluster",
    default="testbed",
    show_default=True,
    metavar="NAME|FILE",
    help="The brokers: a file of conf/clusters, or a path.",
)
_WORKLOAD = click.option(
    "--workload",
    metavar="NAME|FILE",
    help="The traffic pattern: a file of conf/workloads, or a path.  [default: demo, on a testbed]",
)
_SET = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="FILE.KEY=VALUE",
    help="Override a key, as workload.producer.acks=all; may be repeated.",
)
out_option = click.option(
    "--out",
    default="out",
    show_default=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where runs have their folders.",
)
tables_option = click.option(
    "--tables",
    metavar="PATH|SCHEMA",
    help="The Delta tables: any path of Spark's, or a catalog's schema.  [default: OUT/tables]",
)
_SLOTS = click.option(
    "--slots",
    type=click.IntRange(1, COUNT_MAX),
    help="Tasks that share the load.  [default: as many as Spark can run at once]",
)
_DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Print the plan, its duration and its bytes; load nothing."
)
_YES = click.option(
    "--yes", is_flag=True, help="Load a cluster that is not a testbed without asking."
)
lock_option = click.option(
    "--no-lock",
    "locks",
    flag_value=False,
    default=True,
    help="Load the cluster without its lock, where brokers permit none; nobody may load it, too.",
)


def pattern_options(command: Command) -> Command:
    """`--cluster` and `--workload`, which only a testbed has a default of."""

    @functools.wraps(command)
    def gathered(*, workload: str | None, **own: Any) -> Any:
        named = workload or _usual_workload(own["cluster"], own["overrides"])
        return command(workload=named, **own)

    return _CLUSTER(_WORKLOAD(gathered))  # type: ignore[return-value]


def _usual_workload(cluster: str, overrides: tuple[str, ...]) -> str:
    """The laptop's, where the brokers are on one.

    Raises:
        ConfigError: they are not, and nobody wants that load by mistake.
    """
    try:
        is_testbed = load_cluster(cluster, overrides).testbed is not None
    except ConfigError:  # whoever loads it next says what is wrong
        return USUAL_WORKLOAD
    if not is_testbed:
        known = ", ".join(available("workload"))
        raise ConfigError(
            f"cluster {cluster} is no testbed, and no --workload is given; expected one of {known},"
            " or the path of a YAML file, as what a laptop's brokers get says nothing of others; "
            "name one, such as --workload 100B-to-100kB"
        )
    return USUAL_WORKLOAD


def place_options(command: Command) -> Command:
    """`--set`, `--out`, `--tables` and `--slots`."""
    return _SET(out_option(tables_option(_SLOTS(command))))


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a job that loads a cluster: `--set` as `overrides`, the rest as `asked`."""

    @functools.wraps(command)
    def gathered(
        *,
        out: Path,
        tables: str | None,
        slots: int | None,
        dry_run: bool,
        yes: bool,
        locks: bool,
        **own: Any,
    ) -> Any:
        return command(asked=Asked(out, tables, slots, dry_run, yes, locks), **own)

    return place_options(_DRY_RUN(_YES(lock_option(gathered))))
