"""Files of others that are small and ask for much: each is refused in a sentence, soon."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.config.loading import load_cluster, load_workload
from jobs.config.omb import PREFIX
from jobs.runs.run_lock import is_locked
from metrics.common.errors import ConfigError
from metrics.comparing.figures import load_sweep
from metrics.reporting.known_runs import TAGS, known_runs, tags_of
from metrics.reporting.summary import load_summary
from tests.support.robustness import assert_ends_soon

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, after in zip("abcdefghi", "bcdefghij", strict=True)
)
YAMLS = {
    "aliases of aliases": LAUGHS,
    "brackets": "a: " + "[" * 5_000,
    "lists in lists": "a:\n  " + "- " * 3_000 + "1\n",
    "maps in maps": "".join(" " * depth + "a:\n" for depth in range(900)),
}
DEEP_JSON = "[" * 200_000


@pytest.mark.parametrize("text", YAMLS.values(), ids=YAMLS)
@pytest.mark.parametrize("kind", ["cluster", "workload", "omb"])
def test_a_file_that_expands_or_is_deep_is_refused(tmp_path: Path, kind: str, text: str) -> None:
    path = tmp_path / "given.yaml"
    path.write_text(text)

    def load() -> object:
        if kind == "cluster":
            return load_cluster(str(path))
        return load_workload(str(path) if kind == "workload" else f"{PREFIX}{path}")

    with pytest.raises(ConfigError, match=r"more than 10,000 values|nested too deeply"):
        load()
    assert_ends_soon(load)


def test_deep_json_of_an_earlier_run_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "20261123-070000-ab12"
    run.mkdir()
    for name in ("summary.json", "sweep.json", TAGS):
        (run / name).write_text(DEEP_JSON)
    with pytest.raises(ConfigError, match="is not the summary of a run"):
        load_summary(run / "summary.json")
    with pytest.raises(ConfigError, match="is not the answer of a sweep"):
        load_sweep(run / "sweep.json")
    assert tags_of(run) == ()
    assert {each.status for each in known_runs(tmp_path, is_locked)} == {"unreadable"}
