"""Packages of an installation: extras that are missing, and the bill of materials."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.setup.jars import pins
from jobs.setup.sbom import bill, needed
from metrics.reporting import drawing
from metrics.reporting.boundary_chart import write_chart
from metrics.reporting.notebook_display import chart_output
from metrics.reporting.report_page import build_report, report_page
from tests.support.commands import ROOT
from tests.support.report_rows import summary_of_sizes, trials_of_sizes

WITHOUT_SPARK = {
    "export": ("nosuch --as quotas --out {folder}", 2, "nosuch/summary.json"),
    "init": ("{folder}/c.yaml --servers h:9092 --protocol PLAINTEXT --metrics jmx", 0, "doctor"),
    "plan": ("--limit 60 --mb-per-s 600 --message-bytes 1000", 0, "brokers to buy"),
    "runs": ("list --out {folder}", 0, "{folder}"),
    "testbed": ("status", 0, "testbed"),
}
"""Jobs that need no session: their arguments, their exit code, and a part of their output."""


WITHOUT = """
import sys
for name in {modules}:
    sys.modules[name] = None
from jobs.cli import main
for given in {commands}:
    sys.argv = ["redline", *given]
    try:
        main()
    except SystemExit as end:
        code = end.code
    print("{ENDED}", code)
sys.exit(code)
"""
ENDED = "ended with"


def ran_without(
    modules: tuple[str, ...], *commands: tuple[str, ...]
) -> subprocess.CompletedProcess[str]:
    """A process that runs these commands in turn, without these modules."""
    code = WITHOUT.format(modules=modules, commands=commands, ENDED=ENDED)
    return ran("-c", code)


def ran(*words: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """A process of Python in a folder."""
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_jobs_without_a_session_need_no_spark_and_no_pictures(tmp_path: Path) -> None:
    """One process for all of them, as each start takes a second of CPU time."""
    commands = [
        (name, *arguments.format(folder=tmp_path).split())
        for name, (arguments, _, _) in WITHOUT_SPARK.items()
    ]
    done = ran_without(("pyspark", "delta", "py4j", "vl_convert", "scipy"), *commands)
    ends = [line for line in done.stdout.splitlines() if line.startswith(ENDED)]
    codes = [code for _, code, _ in WITHOUT_SPARK.values()]
    assert ends == [f"{ENDED} {code}" for code in codes], done.stdout + done.stderr
    for _, _, part in WITHOUT_SPARK.values():
        assert part.format(folder=tmp_path) in done.stdout + done.stderr


def test_a_job_that_needs_spark_names_the_extra() -> None:
    done = ran_without(("pyspark",), ("find-limit", "--dry-run"))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "redline find-limit needs Spark" in line
    assert "pip install 'kafka-redline[spark]'" in line


def test_pages_without_pictures_have_their_tables_and_state_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "vl_convert", None)
    summary, html, png = summary_of_sizes([1000]), tmp_path / "b.html", tmp_path / "b.png"
    assert write_chart(summary, html, png) == (html,)
    assert not png.exists()
    report = report_page(build_report(summary, trials_of_sizes([1000]), {}))
    for page in (html.read_text(encoding="utf-8"), report):
        assert "vegaEmbed" not in page
        assert "vl-convert is not installed" in page and "kafka-redline[charts]" in page
        assert "<caption>Limits</caption>" in page
    assert "kafka-redline[charts]" in str(chart_output({"mark": "bar"})._repr_mimebundle_())


def test_another_package_with_the_same_name_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "__init__.py").write_text("")
    done = ran("-m", "jobs.cli", "--version", folder=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"metrics ({tmp_path / 'metrics'})" in line
    assert "run from another folder" in line


# --- the bill of materials ---------------------------------------------------------


def test_the_bill_names_packages_with_versions_and_jars_with_hashes() -> None:
    document = bill()
    assert json.loads(json.dumps(document)) == document
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    refs = [each["bom-ref"] for each in document["components"]]
    assert len(refs) == len(set(refs))
    purls = {each["purl"] for each in document["components"] if "purl" in each}
    for name in ("pyspark", "delta-spark", "kafka-python", "crc32c", "py4j"):
        assert f"pkg:pypi/{name}@{importlib.metadata.version(name)}" in purls
    hashed = {each["name"]: each["hashes"] for each in document["components"] if "hashes" in each}
    assert set(hashed) == {jar for each in pins().values() for jar in each}
    for ((alg, digest),) in ([tuple(each.values()) for each in of] for of in hashed.values()):
        assert alg == "SHA-256" and re.fullmatch("[0-9a-f]{64}", digest)
    assert not needed("kafka-redline") & {"kafka-redline", "pytest", "mypy", "ruff", "playwright"}
