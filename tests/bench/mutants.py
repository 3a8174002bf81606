"""The power of the unit tests: mutants drawn at random, and the test that kills each.

    python -m tests.bench.mutants --count 600 --seed 1 --out FILE
    python -m tests.bench.mutants --again FILE

mutmut makes the mutants; `[tool.mutmut]` in pyproject.toml names modules and tests."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from fnmatch import fnmatchcase
from math import sqrt
from operator import ne
from pathlib import Path
from typing import Any

import click
import pytest
from mutmut.__main__ import create_mutants
from mutmut.configuration import config
from mutmut.mutation.data import MutantLineSpans
from mutmut.utils import file_utils
from mutmut.utils.format_utils import get_mutant_name

from tests.bench.mutant_trials import Trials

ROOT = Path(__file__).parents[2]
DEAD = ("killed", "timeout")
_FILE = click.Path(dir_okay=False, resolve_path=True, path_type=Path)
Mutant = dict[str, Any]
"""Its name, its function, its change, and the number of equal changes before it in the module;
when tried, its status and the test that failed."""


def make_mutants() -> Iterator[Mutant]:
    """Write the project with all mutants to mutants/."""
    shutil.rmtree("mutants/tests", ignore_errors=True)  # some of them may be gone
    Path("mutants").mkdir(exist_ok=True)
    with Path("mutants/made.log").open("w", encoding="utf-8") as log, redirect_stdout(log):
        file_utils.copy_src_dir()
        file_utils.copy_also_copy_files()
        create_mutants(1)
    for path in file_utils.walk_mutatable_files():
        spans, before = MutantLineSpans.load(path), Counter[str]()
        names = list(spans.span_by_function_name) if spans else []
        texts = dict(zip(names, spans.read_function_sources(names) if spans else [], strict=True))
        for name in names:
            function = name.partition("__mutmut_")[0]
            original = f"{function}__mutmut_orig"
            if name != original:
                change = _change(*(texts[each].replace(each, "") for each in (original, name)))
                each = {"function": get_mutant_name(path, function), "change": change}
                yield {"name": get_mutant_name(path, name), **each, "before": before[change]}
                before[change] += 1


def _change(original: str, mutant: str) -> str:
    old, new = original.splitlines(), mutant.splitlines()
    for end in (0, -1):
        while old and new and old[end] == new[end]:
            del old[end], new[end]
    signed = (("- ", old), ("+ ", new))
    return "\n".join(sign + line.strip() for sign, lines in signed for line in lines)


def report(before: Sequence[Mutant], after: Sequence[Mutant]) -> Iterator[str]:
    """The share of killed mutants, its difference, and those that survive, or do so now."""
    were, are = ([each["status"] in DEAD for each in mutants] for mutants in (before, after))
    for each, was, now in zip(after, were or [True] * len(are), are, strict=True):
        if was and not now:
            killed_by = f", was killed by {each['killer']}" if before else ""
            yield f"{each['status']}: {each['name']}{killed_by}\n{each['change']}"
    yield ", ".join(f"{n} {each}" for each, n in Counter(each["status"] for each in after).items())
    for name, dead in (("before", were), ("now", are)):
        if dead:
            share = sum(dead) / len(dead)
            error = sqrt(share * (1 - share) / len(dead))
            yield f"{name} {share:.1%} are killed or never end, standard error {error:.1%}"
    if before:
        change = sum(are) - sum(were)
        error = sqrt(sum(map(ne, were, are)) - change**2 / len(are))
        yield f"the difference is {change / (error or 1):+.1f} standard errors"


@click.command()
@click.option("--count", default=600, help="Mutants to draw.")
@click.option("--seed", help="Any text. [default: the hash of the commit]")
@click.option("--only", default="*", help="Pattern of names, such as 'search.guided.*'.")
@click.option("--out", type=_FILE, help="File to write.")
@click.option("--again", type=_FILE, help="File of mutants to try again.")
def main(count: int, seed: str | None, only: str, out: Path | None, again: Path | None) -> None:
    """Try mutants that are drawn at random, or those of a file."""
    recorded = json.loads(again.read_text(encoding="utf-8"))["mutants"] if again else []
    earlier = [each for each in recorded if fnmatchcase(each["name"], only)]
    os.chdir(ROOT)
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip()
    made = {_key(each): each for each in make_mutants() if fnmatchcase(each["name"], only)}
    before = [each for each in earlier if _key(each) in made]
    if again:
        drawn = [{**made[_key(each)], "killer": each["test"]} for each in before]
        click.echo(f"{len(earlier) - len(before)} of {len(earlier)} mutants no longer exist")
    else:
        names = sorted(made.values(), key=lambda each: str(each["name"]))
        drawn = random.Random(seed or commit).sample(names, min(count, len(names)))
    after: list[Mutant] = []
    console = os.fdopen(os.dup(1), "w", encoding="utf-8")
    head = json.dumps({"commit": commit, "seed": seed or commit, "made": len(made)})

    def tried(status: str, test: str) -> None:
        after.append({**drawn[len(after)], "status": status, "test": test})
        click.echo(
            f"{len(after)} of {len(drawn)}: {status} {drawn[len(after) - 1]['name']}", console
        )
        if out:
            lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in after)
            out.write_text(f'{head[:-1]}, "mutants": [\n{lines}\n]}}\n', encoding="utf-8")

    _run_pytest(Trials([(e["name"], e["function"], e.get("killer", "")) for e in drawn], tried))
    for line in report(before, after):
        click.echo(line, file=console)


def _key(mutant: Mutant) -> tuple[str, str, int]:
    return mutant["function"].rpartition(".")[0], mutant["change"], mutant["before"]


def _run_pytest(trials: Trials) -> None:
    """Run pytest in mutants/, with its output in a file there."""
    file_utils.setup_source_paths()
    for name in [each for each in sys.modules if each.partition(".")[0] == "tests"]:
        del sys.modules[name]  # pytest imports those of mutants/
    os.dup2(os.open("mutants/tests.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.chdir("mutants")
    options = ["-q", "-p", "no:cacheprovider", "-o", "timeout=0"]
    selection = config().pytest_add_cli_args_test_selection
    if pytest.main([*options, *selection], [trials]):
        raise click.ClickException("pytest failed; see mutants/tests.log")


if __name__ == "__main__":
    main()
