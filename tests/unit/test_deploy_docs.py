"""docs/deploy names jobs, options, versions and packages that exist."""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

import click

from jobs.cli import redline
from jobs.setup.releases import PAIRS
from jobs.setup.version import __version__
from tests.support.commands import job
from tests.support.kubernetes import RIGHTS

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "deploy").glob("*.md"))
TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
BLOCKS = [
    (name, block)
    for name, text in TEXTS.items()
    for block in re.findall(r"^```\n(.*?)^```", text, re.M | re.S)
]


def command_lines() -> list[tuple[str, list[str]]]:
    """(page, words) of every shell command of the pages."""
    lines = []
    for name, block in BLOCKS:
        if not block.lstrip().startswith("{"):
            whole = block.replace("\\\n", " ")
            lines += [(name, shlex.split(line)) for line in whole.splitlines()]
    return [(name, words) for name, words in lines if words]


def submitted() -> list[tuple[str, click.Command, list[str]]]:
    """(page, the job, its words) of every spark-submit."""
    found = []
    for name, words in command_lines():
        if words[0] == "spark-submit":
            (at,) = [i for i, word in enumerate(words) if re.search(r"(^|/)jobs/\w+\.py$", word)]
            module = Path(words[at]).stem
            command = getattr(importlib.import_module(f"jobs.{module}"), module)
            found.append((name, command, words[at + 1 :]))
    return found


def require_options(command: click.Command, words: list[str]) -> None:
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_each_page_has_a_command_and_states_whether_it_was_tested() -> None:
    platforms = ("databricks", "kubernetes", "standalone", "storage", "yarn")
    assert set(TEXTS) == {"README.md", *(f"{name}.md" for name in platforms)}
    for name in set(TEXTS) - {"README.md"}:
        assert re.search(r"\*\*(Not tested|Tested)\.\*\* ", TEXTS[name]), name
        assert f"]({name})" in TEXTS["README.md"]
    assert {name for name, _, _ in submitted()} == set(TEXTS) - {"databricks.md"}


def test_every_job_command_and_option_exists() -> None:
    for _, command, words in submitted():
        require_options(command, words)
        assert "--yes" in words
    for _, words in command_lines():
        if words[0] == "redline":
            command, rest = redline, words[1:]
            while isinstance(command, click.Group):
                command, rest = job(rest[0], command), rest[1:]
            require_options(command, rest)


def test_the_databricks_job_is_json_and_calls_a_command_that_exists() -> None:
    blocks = [json.loads(block) for name, block in BLOCKS if name == "databricks.md"]
    (task,) = [block["python_wheel_task"] for block in blocks if "python_wheel_task" in block]
    name, *words = task["parameters"]
    require_options(job(name), words)
    assert task["package_name"] == "kafka-redline"
    assert f"{task['entry_point']} = jobs.cli:main" in (ROOT / "setup.py").read_text()


def _in_setup(name: str) -> Any:
    """A constant of setup.py."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"setup.py has no {name}")


def test_artifacts_wheels_and_images_have_the_versions_of_the_project() -> None:
    artifacts = {str(pair.artifact(scala)) for pair in PAIRS for scala in pair.scala}
    (spark,) = (each[9:] for each in _in_setup("EXTRAS")["spark"] if each.startswith("pyspark=="))
    for name, text in TEXTS.items():
        assert artifacts >= set(re.findall(r"io\.delta:[\w.-]+:[\d.]+\d", text)), name
        assert {spark} >= set(re.findall(r"apache/spark:([\d.]+)", text)), name
        assert {__version__} >= set(re.findall(r"kafka_redline-([\d.]+)-py3", text)), name
    rows = re.findall(r"^\| (\d\.\d) \| .*$", TEXTS["README.md"], re.M)
    assert rows == [pair.spark for pair in PAIRS]
    for pair in PAIRS:
        (row,) = re.findall(rf"^\| {pair.spark} \| .*$", TEXTS["README.md"], re.M)
        for scala in pair.scala:
            assert f"`{pair.artifact(scala)}`" in row
        assert " ".join(f"`{each.strip(chr(39))}`" for each in pair.packages.split()) in row


def test_the_projects_spark_settings_are_settings_that_the_driver_reads() -> None:
    places = ("trials/control_server.py", "spark/compatibility.py")
    source = "".join((ROOT / "jobs" / place).read_text() for place in places)
    for text in TEXTS.values():
        for key in set(re.findall(r"spark\.redline\.[\w.]+\w", text)):
            assert f'"{key}"' in source, key


def test_the_service_account_of_kubernetes_has_the_tested_rights() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (`.*`) \|$", TEXTS["kubernetes.md"], re.M)
    assert {resource: re.findall(r"`(\w+)`", verbs) for resource, verbs in rows} == RIGHTS


def test_exit_codes_are_those_of_the_command() -> None:
    documented = dict(re.findall(r"^\| (\d+) \| ([\w ]+)", TEXTS["README.md"], re.M))
    assert set(documented) == {"0", "1", "2", "3", "4", "5", "75", "130", "143"}
    help_text = re.sub(r"\s+", " ", redline.help or "")
    for code, meaning in documented.items():
        assert f"{code} {meaning.strip()}" in help_text
