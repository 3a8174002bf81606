"""A suite, and rows of the table `cases` for nights of one case, by default with equal values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jobs.features.nightly.suite import Suite, SuiteCase
from metrics.tables.rows import CaseRow

DAY_S = 86_400.0
ENVIRONMENT = {
    "driver.cores": "4",
    "redline.version": "0.1.0",
    "redline.commit": "aaaa",
    "package.numpy": "2.4.6",
    "broker.version": "4.1.2",
    "broker.config.num.io.threads": "8",
    "cluster.id": "one",
}
SUITE = Suite(
    name="s",
    cases=(
        SuiteCase(name="limit", limit=1_000),
        SuiteCase(name="load", message_bytes=100, share=0.5),
        SuiteCase(name="late", message_bytes=100, np=3),
    ),
)


def case_row(day: int = 1, value: float = 20.0, **changes: Any) -> CaseRow:
    """A row with a limit of 20 MB/s per broker, `day` days after the epoch."""
    made = CaseRow(
        run_id=f"r{day}",
        event="measured",
        at_s=day * DAY_S,
        suite="s",
        night=f"n{day}",
        case="limit",
        cluster="c",
        workload="w",
        goal="g",
        kind="limit",
        message_bytes=1_000,
        producers=480,
        trials=(1, 2),
        measure="mb_per_s_per_broker",
        value=value,
        values=(value,),
        mb_per_s_per_broker=value,
        limited_by="disk",
        evidence="disk: slow",
        environment=ENVIRONMENT,
        settings={"workload.producer.acks": "1"},
    )
    return replace(made, **changes)


def head_of_night(**changes: Any) -> dict[str, Any]:
    """The names, the times and the end of a night, as nightly.json has them."""
    names = {"run_id": "r9", "night": "n9", "suite": "s", "cluster": "c", "workload": "w"}
    times = {"started_at": "2026-11-21T00:00:00Z", "finished_at": "2026-11-21T00:10:00Z"}
    ended = {"status": "regression", "exit_code": 4, "error": None, "caveat": ""}
    return {**names, "goal": "g", **times, **ended, **changes}
