"""Tests on kfake are skipped, with the reason, where it cannot be built."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import kfake


def reason_to_skip(folder: Path, monkeypatch: pytest.MonkeyPatch, go: str = "") -> str:
    """The reason, on a machine whose `go` is this shell script; without `go` if it is empty."""
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(kfake, "ROOT", folder)
    if go:
        program = folder / "go"
        program.write_text(f"#!/bin/sh\n{go}\n")
        program.chmod(0o755)
    with pytest.raises(pytest.skip.Exception) as skipped:
        kfake.built()
    assert not (folder / ".cache").exists()
    return str(skipped.value)


def test_without_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Go is not installed" in reason_to_skip(tmp_path, monkeypatch)


def test_an_older_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = reason_to_skip(tmp_path, monkeypatch, "echo go1.24.9")
    assert "go1.24 is installed" in reason
    assert "go 1.26 or later" in reason


def test_modules_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = "[ $1 = version ] && echo go1.99 && exit; echo no route >&2; exit 1"
    reason = reason_to_skip(tmp_path, monkeypatch, go)
    assert "cannot fetch the modules" in reason
    assert "no route" in reason
