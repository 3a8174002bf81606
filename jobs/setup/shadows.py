"""Other packages with the names of ours, which Python would import in their place.

Our packages are flat (`jobs`, `search`, `metrics`, `conf`), so that a checkout works as it is; in
an environment that others share, one of the names may be taken. Standard library only.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections.abc import Iterable
from pathlib import Path

NAMES = ("conf", "metrics", "search")
"""Ours beside `jobs`, which holds this module."""


def shadowing_problem(ours: Path, names: Iterable[str] = NAMES) -> str:
    """Which other packages would be imported in place of ours, in a sentence; empty for none.

    Args:
        ours: the folder, or the archive, in which our packages are.
    """
    found = {name: importlib.util.find_spec(name) for name in names}
    others = {name: place for name, spec in found.items() if (place := _elsewhere(spec, ours))}
    if not others:
        return ""
    told = " and ".join(f"{name} ({place})" for name, place in others.items())
    return (
        f"another package has the name of one of kafka-redline's and is imported in its place: "
        f"{told}; expected those in {ours}; run from another folder, take the other one out of "
        "PYTHONPATH, or give kafka-redline an environment of its own"
    )


def _elsewhere(spec: importlib.machinery.ModuleSpec | None, ours: Path) -> str:
    """Where a package is, if that is not among ours; empty if it is, or if there is none."""
    if spec is None:
        return ""
    places = list(spec.submodule_search_locations or [spec.origin or ""])
    if any(Path(place).parent == ours for place in places):
        return ""
    return places[0]
