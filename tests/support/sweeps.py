"""Sweeps of experiments that a test defines, on its testbed."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

from jobs.console.events import RecordingReporter, Reporter
from jobs.features.sweep.cases import Sweep, load_sweep
from jobs.features.sweep.sweep_run import SweepRun
from jobs.runs.context_factory import RunOrder
from jobs.runs.lifecycle import execute
from jobs.runs.outcome import RunOutcome
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file
from metrics.columns import restored
from metrics.common.errors import NoConclusionError
from metrics.comparing import figures
from metrics.comparing.figures import Result
from metrics.features.sweep.answer import Claim, SweepAnswer


def load_answer(path: Path) -> SweepAnswer:
    found = figures.load_sweep(path)
    claims = json.loads(path.read_text(encoding="utf-8")).get("claims", ())
    own = {each.name: getattr(found, each.name) for each in fields(found)}
    return SweepAnswer(**own, claims=tuple(restored(Claim, each) for each in claims))


def sweep_of(folder: Path, testbed: Testbed, text: str) -> Sweep:
    file = folder / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    return load_sweep(str(file), (), str(cluster_file(testbed.folder)))


@dataclass
class Sweeping:
    """A sweep with its order; a sweep of the same id is resumed."""

    body: SweepRun
    order: RunOrder

    @property
    def results(self) -> list[Result]:
        return self.body.results

    def run(self) -> None:
        """Execute the sweep to its end, with or without an answer."""
        with suppress(NoConclusionError):
            execute(self.body, self.order)

    def outcome(self, error: BaseException | None) -> RunOutcome:
        return self.body.outcome(error)


def sweeping(
    sweep: Sweep, folder: Path, reporter: Reporter, budget_s: float | None = None
) -> Sweeping:
    """The sweep `s1`, with its tables in the same folder."""
    order = RunOrder(folder, reporter=reporter, run_id="s1", resumes=True)
    return Sweeping(SweepRun(sweep, budget_s), order)


def swept(folder: Path, testbed: Testbed, text: str) -> Sweeping:
    """A sweep that ended well."""
    under_way = sweeping(sweep_of(folder, testbed, text), folder, RecordingReporter())
    under_way.run()
    assert under_way.outcome(None).exit_code == 0, under_way.results
    return under_way
