"""The check for packages that shadow this project's packages in Python's import path.

The project's packages are flat (`jobs`, `search`, `metrics`, `conf`), so that a checkout works as
it is; in a shared environment another package may have one of these names. Standard library only.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections.abc import Iterable
from pathlib import Path

NAMES = ("conf", "metrics", "search")
"""The packages besides `jobs`, which contains this module."""


def shadowing_problem(ours: Path, names: Iterable[str] = NAMES) -> str:
    """A message about packages that shadow this project's; empty without any.

    Args:
        ours: folder or archive of this project's packages.
    """
    found = {name: importlib.util.find_spec(name) for name in names}
    others = {name: place for name, spec in found.items() if (place := _elsewhere(spec, ours))}
    if not others:
        return ""
    shadowing = " and ".join(f"{name} ({place})" for name, place in others.items())
    return (
        f"Python imports other packages instead of kafka-redline's: {shadowing}; expected the "
        f"packages in {ours}; run from another folder, remove the other package from PYTHONPATH, "
        "or install kafka-redline in an environment of its own"
    )


def _elsewhere(spec: importlib.machinery.ModuleSpec | None, ours: Path) -> str:
    """The path of a package outside of `ours`; empty if it is inside, or does not exist."""
    if spec is None:
        return ""
    places = list(spec.submodule_search_locations or [spec.origin or ""])
    if any(Path(place).parent == ours for place in places):
        return ""
    return places[0]
