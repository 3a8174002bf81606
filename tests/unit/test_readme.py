"""The README: its length, and each command in it."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from tests.support.commands import ROOT, job

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.M | re.S)
IN_BLOCKS = [line.partition(" #")[0].strip() for block in BLOCKS for line in block.splitlines()]
IN_TEXT = re.findall(r"`(redline [a-z][^`]*)`", TEXT)
COMMANDS = [each.removeprefix(".venv/bin/") for each in (*IN_BLOCKS, *IN_TEXT)]


def test_it_is_short() -> None:
    assert len(TEXT.split()) <= 950


def test_its_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = [each.split()[1] for each in COMMANDS if each.startswith("make ")]
    assert {"demo", "test"} <= {*targets}
    assert [each for each in targets if f"\n{each}:" not in makefile] == []


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.startswith("redline ")])
def test_its_options_are_those_of_the_command(command: str) -> None:
    _, name, *arguments = shlex.split(command)
    found = job(name)
    if isinstance(found, click.Group) and arguments:
        found, arguments = found.commands[arguments[0]], arguments[1:]
    given = [each for each in arguments if each.startswith("--")]
    known = [option for each in found.params for option in each.opts]
    assert [each for each in given if each not in known] == []
