"""The events of an invented run, and their output in a log and on a terminal."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TextIO

from rich.console import Console

from jobs.console.events import (
    Event,
    PhaseProgress,
    PhaseStarted,
    Plan,
    PointFinished,
    RunFinished,
    RunStarted,
    Table,
    TrialFinished,
    TrialProgress,
    TrialStarted,
)
from jobs.console.printing import PlainReporter, TerminalReporter
from metrics.reporting.summary import RunSummary
from metrics.tables.boundary import make_boundary
from metrics.traffic.axes import NP
from metrics.trial.evidence import Judgement, Reason
from metrics.windows.use import Resource
from search.model import Bracket, Interval, Verdict
from tests.support.evidence import broker, client
from tests.support.rows import traffic, trial

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PLAN = Plan(
    cluster="testbed-3",
    workload="100B-to-10kB",
    goal="default",
    brokers=3,
    message_bytes=(100, 10_000),
    producer="250 kB/s each, acks=1",
    resolution=0.05,
    trial_s=14,
    trials_estimated=12,
    duration_s=320,
    write_bytes_max=12.4e9,
    out=Path("out/run"),
    notes=("A small disk-bound cluster.",),
)
PATTERN_128 = traffic(128, 10_000, 25.0, load=128)
STARTED = TrialStarted(3, PATTERN_128, "probing 128 to end the search", 14)
IDLE = Reason(
    "request_handler_idle", "request handlers of broker 2 idle 0.12, below 0.20", 0.12, 0.2, 2
)
FINISHED = TrialFinished(
    trial(
        3,
        pattern=PATTERN_128,
        client=client(acked_bytes=312_000_000),
        brokers=(broker(1), broker(2, handler_idle=0.123, isr_changed_share=0.55)),
        judgements={"default": Judgement(Verdict.OVERLOADED, (IDLE,))},
    ),
    duration_s=14.2,
    trials_left=4,
)
CLOSED = replace(
    make_boundary(
        Bracket(120, 126),
        NP,
        traffic(1, 10_000, 25.0, brokers=3),
        trials=6,
        reasons=[Reason("request_handler_idle", "broker 2 idle 0.12, below 0.20", 0.12, 0.2, 2)],
        limited_by=Resource.REQUEST_HANDLERS,
        interval=Interval(114.5, 127.2, 121.4),
    ),
    interval_max=0.2,
    latency_p50_ms=3.1,
    latency_p99_ms=12.04,
    latency_p999_ms=140.0,
)
OPEN = make_boundary(
    Bracket(95, None), NP, traffic(1, 100, 2500.0, brokers=3), trials=6, gave_up="load_cap hit"
)
SUMMARY = RunSummary(
    run_id="run-1",
    started_at="2026-11-21T11:46:32Z",
    finished_at="2026-11-21T11:51:40Z",
    cluster="testbed-3",
    workload="100B-to-10kB",
    goal="default",
    boundaries=(CLOSED, OPEN),
    brokers=3,
    status="no conclusion",
)
RUN: tuple[Event, ...] = (
    RunStarted("run-1", PLAN),
    PhaseStarted("starting Spark"),
    PhaseProgress("2 of 3 brokers ready"),
    STARTED,
    TrialProgress("measuring", 6.0, 31.0, broker(2, handler_idle=0.2)),
    FINISHED,
    PointFinished(CLOSED),
    PointFinished(OPEN),
    RunFinished(SUMMARY, 308, (("summary", "out/run/summary.json"),)),
    Table("testbed", ("broker", "state"), (("1", "ready"), ("12", "fenced"))),
)


class Stream(io.StringIO):
    """A text stream that can present itself as a terminal."""

    def __init__(self, *, tty: bool = False, encoding: str = "utf-8") -> None:
        super().__init__()
        self._tty, self._encoding = tty, encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._tty


def plain(out: TextIO, err: TextIO) -> PlainReporter:
    return PlainReporter(out, err, lambda: datetime(2026, 11, 21, 11, 46, 32, tzinfo=timezone.utc))


def terminal(out: Stream, width: int = 80, *, err: Stream | None = None) -> TerminalReporter:
    console = Console(
        file=out, force_terminal=True, width=width, highlight=False, emoji=False, no_color=True
    )
    return TerminalReporter(console, err or Stream(tty=True), Stream(), clock_s=lambda: 0.0)


def plain_run(*events: Event) -> list[str]:
    out = Stream()
    with plain(out, Stream()) as reporter:
        for event in events:
            reporter.report(event)
    return out.getvalue().splitlines()


def screen(*events: Event, width: int = 80) -> str:
    """The lines that stay on a terminal after these events."""
    out = Stream(tty=True)
    with terminal(out, width) as reporter:
        for event in events:
            reporter.report(event)
    return ANSI.sub("", out.getvalue()).replace("\r", "\n")
