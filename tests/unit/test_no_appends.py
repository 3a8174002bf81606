"""OUT on a file system that takes whole files only: no appends, no writes in between, no locks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from jobs.runs.run_lock import FILE, is_locked, run_lock
from metrics.reporting.files import open_to_append
from tests.support.commands import ROOT
from tests.support.whole_file_volume import whole_file_volume

CHILD_S = 240.0
"""A process that imports all of a run, on a busy machine [s]."""


def in_a_child(value: str, folder: Path) -> Any:
    """The value of an expression in a process of its own, with the layer planted on `folder`."""
    program = f"""
import json
from pathlib import Path
from tests.support import no_appends
from tests.support.run_in_parts import parts_of_a_run
folder = Path({str(folder)!r})
no_appends.plant(folder)
print(json.dumps({value}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=CHILD_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_run_keeps_its_log_and_shows_that_it_is_active(tmp_path: Path) -> None:
    both = "[parts_of_a_run(folder / str(locks), locks=locks) for locks in (True, False)]"
    for found in in_a_child(both, tmp_path):
        assert found["log"] == ["library: part 1", "library: part 2"]
        assert found["files"] == ["run.log"], "no file of a lock or a probe is left"
        assert f"lock {FILE}" in found["refused"]
        assert any(each.startswith("append ") for each in found["refused"])
        warned = [each for each in found["notices"] if "second driver" in each]
        assert len(warned) == (0 if found["locks"] else 2), "the cluster's lock excludes one, too"
        assert all("start the run only once" in each for each in warned)


def test_a_log_is_continued_on_such_a_file_system(tmp_path: Path) -> None:
    """`Spark` gets the open file; the earlier part of the log is of another process."""
    with whole_file_volume(tmp_path / "volume", tmp_path / "source") as volume:
        for text in (b"first\n", b"second\n"):
            with open_to_append(volume / "spark.log") as stream:
                subprocess.run([sys.executable, "-c", f"print({text.decode()!r}, end='')"],
                               stdout=stream, check=True)  # fmt: skip
        assert (volume / "spark.log").read_bytes() == b"first\nsecond\n"
        assert [path.name for path in volume.iterdir()] == ["spark.log"]


def test_the_lock_file_names_the_driver_on_such_a_file_system(tmp_path: Path) -> None:
    with whole_file_volume(tmp_path / "volume", tmp_path / "source") as volume:
        with run_lock(volume / "r1", "redline run r1 of a@b") as has_lock:
            assert not has_lock
            assert is_locked(volume / "r1")
            assert (volume / "r1" / FILE).read_text().startswith("redline run r1 of a@b, process ")
        assert not is_locked(volume / "r1")
        assert list((volume / "r1").iterdir()) == []
