"""Which package a module came with."""

from __future__ import annotations

import importlib.metadata

from packaging.utils import canonicalize_name


def owners() -> dict[str, set[str]]:
    """The top name of each module → the packages that have it, as the package index writes them.

    From all files, as Python 3.10 itself looks only into what a package says of itself.
    """
    found: dict[str, set[str]] = {}
    for package in importlib.metadata.distributions():
        name = canonicalize_name(package.metadata["Name"])
        for path in package.files or ():
            found.setdefault(path.parts[0].partition(".")[0], set()).add(name)
    return found
