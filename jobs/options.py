"""The options that several jobs share, with the same names and help in all of them."""

from __future__ import annotations

import functools
import math
import re
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from jobs.runs.options import RunOptions
from metrics.common.bounds import OfferedRate, amount, offered_rate
from metrics.common.errors import ConfigError
from metrics.planning.load_hours import next_time
from metrics.reporting.files import require_place

Command = TypeVar("Command", bound=Callable[..., Any])

TESTBED_WORKLOAD = "demo"
"""The default workload on a testbed."""

COUNT_MAX = 1_000_000_000
"""Upper bound of every count; a larger one is a typing error."""


def duration_s(text: str) -> float:
    """The seconds of a time with its unit, such as 90s, 30m or 1.5h [s].

    Raises:
        ConfigError: the text is not such a time.
    """
    seconds = amount(text, "seconds")
    if not seconds:
        raise ConfigError(
            f"{text!r} is not a time; expected a number above 0 with the unit s, m or h; write for "
            "example 30m"
        )
    return float(seconds)


class Parsed(click.ParamType):  # type: ignore[type-arg]  # not generic in older versions
    """A value that is read from a text; a ValueError is shown as a wrong use of the option."""

    def read(self, value: Any) -> Any:
        """The value of the option."""
        raise NotImplementedError

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value of the option; fails for a text that is none."""
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Duration(Parsed):
    """A duration: a number of seconds, or a time with its unit such as 8h."""

    name = "time"

    def read(self, value: Any) -> float:
        """The duration [s]; fails for a value that is not a time, or not finite."""
        text = str(value).strip()
        try:
            seconds = float(text)
        except ValueError:
            return duration_s(text)
        if not 0 < seconds < math.inf:
            raise ValueError(f"{value!r} is not a finite time above 0.")
        return seconds


class Rate(Parsed):
    """A rate of all producers together: a payload such as 200 MB/s, or messages such as 50k/s."""

    name = "rate"

    def read(self, value: Any) -> OfferedRate:
        """The rate; fails for a value without the unit of a rate."""
        rate = offered_rate(str(value))
        if rate is None:
            raise ValueError(
                f"{value!r} is not a rate; expected a payload such as 200MB/s (MB is 10^6 bytes), "
                "or messages such as 50000/s or '50k msg/s'."
            )
        return rate


class ConfName(click.ParamType):  # type: ignore[type-arg]  # not generic in older versions
    """The name of a file in a folder of conf, or the path of another; shells complete both."""

    name = "text"

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names and the files that begin with the incomplete word."""
        # Imported here, as it loads all configuration models, and options need none of them.
        from jobs.config.files import names_in

        names = [each for each in names_in(self._folder) if each.startswith(incomplete)]
        return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]


class Count(click.IntRange):
    """A whole number in a range."""

    name = "whole number"


class Amount(click.FloatRange):
    """A finite number in a range."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number; fails for nan and the infinities."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class OutputFile(click.ParamType):  # type: ignore[type-arg]  # not generic in older versions
    """A file to write; a place where it cannot be written is refused before the job starts."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path of the file.

        Raises:
            ConfigError: the file cannot be written there.
        """
        path = Path(value)
        require_place(_name_of(param), path)
        return path

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The files that begin with the incomplete word."""
        return [CompletionItem(incomplete, type="file")]


def _name_of(param: click.Parameter | None) -> str:
    """The name of a parameter on the command line, such as --json or FILE."""
    if isinstance(param, click.Option):
        return param.opts[0]
    return "FILE" if param is None else param.human_readable_name


class RunId(Parsed):
    """The id of a run, a sweep or a comparison; it names the folder and the rows."""

    name = "id"

    def read(self, value: Any) -> str:
        """The id; fails for a value that could be a path or part of a query."""
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}", str(value)) is None:
            raise ValueError(
                f"{value!r} is not a run id; expected letters, digits, dots, dashes and "
                "underscores, such as 20261122-210000-ab12."
            )
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The folders in --out that begin with the incomplete word, the newest first."""
        out = Path(ctx.params.get("out") or "out")
        found = [each.name for each in out.iterdir() if each.is_dir()] if out.is_dir() else []
        own = (each for each in found if each.startswith(incomplete) and each[:1].isalnum())
        return [CompletionItem(each) for each in sorted(own, reverse=True) if each != "tables"]


class RunPlace(RunId):
    """The id of a run in --out, or the path of its folder."""

    def read(self, value: Any) -> str:
        """The value itself; fails when it is neither an id nor a path."""
        return str(value) if "/" in str(value) else super().read(value)


class Tables(Parsed):
    """The place of the Delta tables: a path that Spark reads, with a slash, or a schema's name."""

    name = "tables"

    def read(self, value: Any) -> str:
        """The value itself; fails for a name that could mean a local folder or a schema."""
        name = str(value)
        if "/" not in name and "." not in name and Path(name).is_dir():
            raise ValueError(
                f"{name!r} is a folder here, and a name without a slash means a schema; write "
                f"./{name} for the folder, or spark_catalog.{name} for the schema."
            )
        return name


def place_of(out: Path, run: str) -> Path:
    """The folder of the run that a `RunPlace` names."""
    return Path(run) if "/" in run else out / run


_CLUSTER = click.option("--cluster", type=ConfName("clusters"), default="testbed",
                        show_default=True, metavar="NAME|FILE",
                        help="The cluster: a file of conf/clusters, or a path.")  # fmt: skip
_WORKLOAD = click.option("--workload", type=ConfName("workloads"), metavar="NAME|FILE",
                         help="The traffic pattern: a file of conf/workloads, or a path.  "
                              "[default: demo, on a testbed]")  # fmt: skip
_SET = click.option("--set", "overrides", multiple=True, metavar="FILE.KEY=VALUE",
                    help="Override a key, such as workload.producer.acks=all; may be "
                         "repeated.")  # fmt: skip
out_option = click.option("--out", default="out", show_default=True, metavar="DIR",
                          type=click.Path(file_okay=False, path_type=Path),
                          help="The folder of all runs.")  # fmt: skip
tables_option = click.option("--tables", type=Tables(), metavar="PATH|SCHEMA",
                             help="The Delta tables: a path that Spark reads, or a catalog's "
                                  "schema.  [default: OUT/tables]")  # fmt: skip
_SLOTS = click.option("--slots", type=Count(1, COUNT_MAX),
                      help="Tasks that share the load.  [default: as many as Spark can run at "
                           "once]")  # fmt: skip
_DRY_RUN = click.option("--dry-run", is_flag=True,
                        help="Print the plan with its duration and its bytes, and load "
                             "nothing.")  # fmt: skip
_YES = click.option(
    "--yes", is_flag=True, help="Load a cluster that is not a testbed, without asking."
)


class TimeOfDay(Parsed):
    """The next moment at which it is 06:00, or a date with a time, on the driver's clock."""

    name = "time"

    def read(self, value: Any) -> float:
        """The moment [s since the epoch]; fails for another text, or a moment that has passed."""
        if isinstance(value, float):
            return value
        try:
            return next_time(str(value), time.time())
        except ValueError as error:
            raise ValueError(
                f"{value!r} is not a time ahead ({error}); expected a time of day such as 06:00, "
                "or a date with a time such as 2026-11-27T06:00."
            ) from None


class ListenAddress(Parsed):
    """A port of this machine, alone or after a host: 9464 or 0.0.0.0:9464."""

    name = "port"

    def read(self, value: Any) -> tuple[str, int]:
        """Host and port; fails for a value that is not a port."""
        host, _, port = str(value).rpartition(":")
        if not port.isdecimal() or int(port) > 65_535:
            raise ValueError(f"{value!r} is not a port; expected one such as 9464 or 0.0.0.0:9464.")
        return host or "127.0.0.1", int(port)


_METRICS_PORT = click.option("--metrics-port", "metrics_at", type=ListenAddress(),
                             metavar="[HOST:]PORT",
                             help="Serve live values for Prometheus at this port; on loopback "
                                  "unless a HOST is given.")  # fmt: skip
_NOTIFY = click.option("--notify", "notify_from", multiple=True, metavar="env:NAME|file:PATH",
                       help="Send messages at the start and the end; the named variable or file "
                            "holds the addresses, in the form of apprise; may be "
                            "repeated.")  # fmt: skip
_UNTIL = click.option("--until", "until_s", type=TimeOfDay(), metavar="TIME",
                      help="Begin no load that would last beyond this time, such as 06:00; the "
                           "run then stops with exit code 5, and continues with "
                           "--resume.")  # fmt: skip
json_option = click.option("--json", "json_file", metavar="FILE", type=OutputFile(),
                           help="Also write the answer for programs to this file.")  # fmt: skip
lock_option = click.option("--no-lock", "locks", flag_value=False, default=True,
                           help="Do not take the cluster's lock, if brokers deny it; ensure that "
                                "no other run is active.")  # fmt: skip


def pattern_options(command: Command) -> Command:
    """The options `--cluster` and `--workload`; the workload has a default on a testbed only."""

    @functools.wraps(command)
    def gathered(*, workload: str | None, **own: Any) -> Any:
        is_resumed = own.get("resume") is not None  # a resumed run has a recorded workload
        named = workload
        if named is None and not is_resumed:
            named = _default_workload(own["cluster"], own["overrides"])
        return command(workload=named, **own)

    return _CLUSTER(_WORKLOAD(gathered))  # type: ignore[return-value]


def _default_workload(cluster: str, overrides: tuple[str, ...]) -> str:
    """The default workload of a testbed.

    Raises:
        ConfigError: the cluster is not a testbed, and has no default workload.
    """
    from jobs.config.loading import available, load_cluster

    try:
        is_exclusive = load_cluster(cluster, overrides).is_exclusive
    except ConfigError:  # the job loads the file again and reports the error
        return TESTBED_WORKLOAD
    if not is_exclusive:
        known = ", ".join(available("workload"))
        raise ConfigError(
            f"cluster {cluster} is not a testbed, and --workload is missing; expected one of "
            f"{known}, or the path of a YAML file, as only testbeds have a default workload; add "
            "for example --workload quick"
        )
    return TESTBED_WORKLOAD


def place_options(command: Command) -> Command:
    """The options `--set`, `--out`, `--tables` and `--slots`."""
    return _SET(out_option(tables_option(_SLOTS(command))))


_RUN_OPTIONS = tuple(each.name for each in fields(RunOptions))


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a job that loads a cluster: `--set` as `overrides`, the rest as `options`."""

    @functools.wraps(command)
    def gathered(**given: Any) -> Any:
        own = {name: value for name, value in given.items() if name not in _RUN_OPTIONS}
        return command(options=RunOptions(**{name: given[name] for name in _RUN_OPTIONS}), **own)

    return place_options(
        _DRY_RUN(_YES(_UNTIL(lock_option(json_option(_METRICS_PORT(_NOTIFY(gathered)))))))
    )
