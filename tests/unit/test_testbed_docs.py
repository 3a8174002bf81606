"""docs/testbed.md lists exactly the keys and options that exist."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import click

from jobs.config.link import Link
from jobs.testbed import commands
from jobs.testbed.profile import Profile

PAGE = (Path(__file__).parents[2] / "docs" / "testbed.md").read_text(encoding="utf-8")


def test_every_key_of_a_profile_is_documented_with_its_default() -> None:
    section = PAGE.split("## Profiles", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:3] == "| `"]
    assert [row[0].strip("`") for row in rows] == list(Profile.model_fields)
    for row in rows:
        default = Profile.model_fields[row[0].strip("`")].default
        if isinstance(default, (int, str)) and default:
            assert row[2] in (str(default), "the file's name")


def test_every_command_and_option_is_documented() -> None:
    for name, command in commands.testbed.commands.items():
        assert f"redline testbed {name}" in PAGE
        for parameter in command.params:
            assert isinstance(parameter, click.Option)
            assert re.search(rf"`{parameter.opts[0]}\b", PAGE), parameter.opts[0]


def test_every_key_of_a_link_is_documented_with_its_default() -> None:
    section = PAGE.split("## Brokers behind a link", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:3] == "| `"]
    defaults = {item.name: item.default for item in fields(Link)}
    assert [row[0].strip("`") for row in rows] == list(defaults)
    for name, _, shown, _ in rows:
        default = defaults[name.strip("`")]
        assert shown == ("–" if default is None else str(default))
