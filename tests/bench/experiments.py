"""All ready experiments in their short form on real brokers, and their pages in docs/experiments.

    python -m tests.bench.experiments --out FOLDER            # about 95 minutes in all
    python -m tests.bench.experiments --out FOLDER io-threads acks
    python -m tests.bench.experiments --pages                 # only write the pages from their data

The experiments run one after the other, each as `redline sweep NAME --quick`. A second start with
the same folder runs the experiments without an answer. Answers are kept in
docs/evidence/experiments/data, and a page follows from its experiment and its data, except the
remark, which a person writes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from jobs.config.files import names_in
from jobs.features.sweep.cases import load_sweep
from metrics.common.errors import ConfigError
from metrics.features.sweep.charts import write_sweep_chart
from metrics.reporting.summary import load_summary
from tests.support.commands import ROOT
from tests.support.sweeps import load_answer

PAGES = ROOT / "docs" / "evidence" / "experiments"
RUN_S = 1_800.0
"""Longest duration of an experiment; a longer one has failed [s]."""
REMARK = "## Remark"
INDEX = """# Published studies, repeated

*Written by `make generate`, as are the pages of the experiments except their remarks.*

Each experiment is a file of [conf/experiments](../../../conf/experiments). Its page shows the \
results of its short form on real brokers on two cores (November 2026), and holds them against \
the published claims; [data](data) has the figures. They do not apply to other hardware. \
`make bench-experiments` runs all experiments, and [sweep](../../experiments.md) describes how.

| experiment | question | published result |
| --- | --- | --- |"""


def measure(name: str, out: Path) -> bool:
    """Run an experiment unless it has an answer, and return True if it has one now."""
    folder = out / name
    if _sweep_in(folder) is not None:
        return True
    began_s = time.monotonic()
    log = folder / "console.log"
    folder.mkdir(parents=True, exist_ok=True)
    options = ["sweep", name, "--quick", "--yes", "--out", str(folder)]
    command = [sys.executable, "-m", "jobs.cli", *options]
    with log.open("ab") as stream:
        ended = subprocess.run(command, cwd=ROOT, stdout=stream, stderr=stream, timeout=RUN_S,
                               check=False)  # fmt: skip
    took_s = time.monotonic() - began_s
    (folder / "took.json").write_text(json.dumps({"took_s": took_s}))
    click.echo(f"{name}: exit code {ended.returncode} after {took_s:.0f} s")
    return _sweep_in(folder) is not None


def _sweep_in(folder: Path) -> Path | None:
    """The newest sweep with an answer for at least one case."""
    for path in sorted(folder.glob("*/sweep.json"), reverse=True):
        if any(each.value for each in load_answer(path).results):
            return path
    return None


def keep(name: str, out: Path, pages: Path = PAGES) -> None:
    """Copy the answer of an experiment into the data of the pages.

    Raises:
        ConfigError: the experiment has no answer.
    """
    path = _sweep_in(out / name)
    if path is None:
        raise ConfigError(f"{name} has no answer in {out}; expected one; run it first")
    answer = load_answer(path)
    first = next(each for each in answer.results if each.run_id)
    environment = load_summary(path.parent / first.run_id / "summary.json").environment
    took = out / name / "took.json"
    lasted = f", {json.loads(took.read_text())['took_s'] / 60:.1f} minutes" if took.exists() else ""
    caveat = (
        f"{answer.finished_at[:10]}, Kafka {environment['broker.version']}, brokers and generator "
        f"on {environment['driver.cores']} cores and one disk{lasted}"
    )
    (pages / "data").mkdir(parents=True, exist_ok=True)
    kept = replace(answer, caveat=caveat)
    (pages / "data" / f"{name}.json").write_text(kept.document(), encoding="utf-8")
    (pages / "images").mkdir(parents=True, exist_ok=True)
    write_sweep_chart(answer, pages / "images" / f"{name}.svg")


def page_of(name: str, remark: str) -> str:
    """The page of an experiment: all but the remark follows from its file and its data."""
    experiment = load_sweep(name).experiment
    answer = load_answer(PAGES / "data" / f"{name}.json")
    answer = replace(answer, claims=experiment.claims)
    question = experiment.description
    rows = [answer.columns, *answer.rows]
    first, *others = (f"| {' | '.join(row)} |" for row in rows)
    table = "\n".join((first, f"|{'---|' * len(answer.columns)}", *others))
    has_none = experiment.published and not answer.claims
    sentences = (
        *(["the study compares no two cases of this experiment"] if has_none else ()),
        *answer.claim_sentences,
        *answer.sentences,
        *answer.advices,
        *answer.caveats,
        *answer.meanings,
    )
    conclusion = "\n".join(f"- {text}" for text in sentences)
    return f"""# {question[0].upper()}{question[1:]}

```sh
redline sweep {name}            # as published
redline sweep {name} --quick    # as below
```

{experiment.published or "No published study asks this."}

The experiment is [{name}.yaml](../../../conf/experiments/{name}.yaml).

## Measured

{answer.caveat}.

![The figures over what varies](images/{name}.svg)

{table}

## Conclusion

{conclusion}

{REMARK}

{remark.strip()}
"""


def index_page() -> str:
    """The list of all ready experiments."""
    rows = []
    for name in names_in("experiments"):
        found = load_sweep(name).experiment
        rows.append(f"| [{name}]({name}.md) | {found.description} | {found.published or '–'} |")
    return "\n".join([INDEX, *rows, ""])


def remark_in(page: str) -> str:
    """The part of a page that a person writes."""
    return page.split(REMARK)[1].strip() if REMARK in page else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiments and write their pages; return 1 if one has no answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="experiments; all by default")
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--pages", action="store_true", help="only write the pages from their data")
    options = parser.parse_args(arguments)
    if options.out is None and not options.pages:
        parser.error("give --out FOLDER for the results, or --pages")
    names = options.names or list(names_in("experiments"))
    out = options.out.absolute() if options.out else Path()
    failed = [] if options.pages else [name for name in names if not measure(name, out)]
    for name in set(names) - set(failed):
        page = PAGES / f"{name}.md"
        if not options.pages:
            keep(name, out)
        remark = remark_in(page.read_text(encoding="utf-8")) if page.exists() else ""
        page.write_text(page_of(name, remark), encoding="utf-8")
    (PAGES / "README.md").write_text(index_page(), encoding="utf-8")
    if failed:
        click.echo(f"without an answer: {', '.join(failed)}", err=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
