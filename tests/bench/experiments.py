"""All ready experiments in their short form on real brokers, and their pages in docs/experiments.

    python -m tests.bench.experiments --out FOLDER            # about 95 minutes in all
    python -m tests.bench.experiments --out FOLDER io-threads acks
    python -m tests.bench.experiments --out FOLDER --pages    # only write the pages

The experiments run one after the other, each as `redline sweep NAME --quick`. A second start with
the same folder runs the experiments without an answer. Only the text between the two marks of a
page is replaced; the rest is written by people.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from jobs.config.files import names_in
from metrics.common.errors import ConfigError
from metrics.reporting.summary import load_summary
from metrics.reporting.sweep.answer import SweepAnswer, load_answer
from metrics.reporting.sweep.charts import write_sweep_chart
from tests.support.commands import ROOT

PAGES = ROOT / "docs" / "experiments"
RUN_S = 1_800.0
"""Longest duration of an experiment; a longer one has failed [s]."""
BEGIN, END = "<!-- measured -->", "<!-- end of measured -->"


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


def write_page(name: str, out: Path, pages: Path = PAGES) -> None:
    """Write the measured results into the experiment's page.

    Raises:
        ConfigError: the experiment has no answer, or the page does not have its marks.
    """
    path = _sweep_in(out / name)
    if path is None:
        raise ConfigError(f"{name} has no answer in {out}; expected one; run it first")
    answer = load_answer(path)
    (pages / "images").mkdir(parents=True, exist_ok=True)
    write_sweep_chart(answer, pages / "images" / f"{name}.svg")
    page = pages / f"{name}.md"
    text = page.read_text(encoding="utf-8") if page.exists() else _fresh(answer)
    if BEGIN not in text or END not in text:
        raise ConfigError(f"{page} has no {BEGIN} or no {END}; expected both; restore them")
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    measured = "\n".join(_measured(answer, path, out / name))
    page.write_text(f"{head}{BEGIN}\n{measured}\n{END}{tail}", encoding="utf-8")


def _fresh(answer: SweepAnswer) -> str:
    question = answer.description[0].upper() + answer.description[1:]
    return (
        f"# {question}\n\n```sh\nredline sweep {answer.experiment}            # as published\n"
        f"redline sweep {answer.experiment} --quick    # as below\n```\n\n"
        f"{answer.published or 'No published study asks this.'}\n\n"
        f"The experiment is [{answer.experiment}.yaml]"
        f"(../../conf/experiments/{answer.experiment}.yaml).\n\n"
        f"## Measured\n\n{BEGIN}\n{END}\n\n"
        "## Conclusion\n\n"
    )


def _measured(answer: SweepAnswer, path: Path, folder: Path) -> Iterator[str]:
    first = next(each for each in answer.results if each.run_id)
    environment = load_summary(path.parent / first.run_id / "summary.json").environment
    took = folder / "took.json"
    lasted = f", {json.loads(took.read_text())['took_s'] / 60:.1f} minutes" if took.exists() else ""
    yield (
        f"{answer.finished_at[:10]}, Kafka {environment['broker.version']}, brokers and generator "
        f"on {environment['driver.cores']} cores and one disk{lasted}."
    )
    yield ""
    yield f"![The figures over what varies](images/{answer.experiment}.svg)"
    yield ""
    yield f"| {' | '.join(answer.columns)} |"
    yield f"|{'---|' * len(answer.columns)}"
    for row in answer.rows:
        yield f"| {' | '.join(row)} |"
    yield ""
    for sentence in (*answer.meanings, *answer.sentences, *answer.advices, *answer.caveats):
        yield f"- {sentence}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiments and write their pages; return 1 if one has no answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="experiments; all by default")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--pages", action="store_true", help="only write the pages")
    options = parser.parse_args(arguments)
    names = options.names or list(names_in("experiments"))
    out = options.out.absolute()
    failed = [] if options.pages else [name for name in names if not measure(name, out)]
    for name in set(names) - set(failed):
        write_page(name, out)
    if failed:
        click.echo(f"without an answer: {', '.join(failed)}", err=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
