"""Tests on programs in Go are skipped, with the reason, if the program cannot be built."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import go_programs

DATA = Path(__file__).parents[1] / "data"
SOURCES = [module.parent for module in DATA.glob("*/go.mod")]
NO_ROUTE = "[ $1 = version ] && echo go1.99 && exit; echo no route >&2; exit 1"


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
@pytest.mark.parametrize(
    ("go", "parts"),
    [
        ("", ["Go is not installed"]),
        ("echo go1.24.9", ["go1.24 is installed", "go 1.26 or later"]),
        (NO_ROUTE, ["cannot fetch the modules", "no route"]),
    ],
)
def test_a_machine_that_cannot_build_it(
    source: Path, go: str, parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(go_programs, "ROOT", tmp_path)
    if go:
        program = tmp_path / "go"
        program.write_text(f"#!/bin/sh\n{go}\n")
        program.chmod(0o755)
    with pytest.raises(pytest.skip.Exception) as skipped:
        go_programs.built(source)
    assert not (tmp_path / ".cache").exists()
    assert all(part in str(skipped.value) for part in parts)
