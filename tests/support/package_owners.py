"""The installed packages that modules belong to."""

from __future__ import annotations

import importlib.metadata

from packaging.utils import canonicalize_name


def owners() -> dict[str, set[str]]:
    """Top-level name of each module → names of its packages, as the package index writes them.

    It reads the list of all files, as `packages_distributions` of Python 3.10 reads only the
    metadata file `top_level.txt`.
    """
    found: dict[str, set[str]] = {}
    for package in importlib.metadata.distributions():
        name = canonicalize_name(package.metadata["Name"])
        for path in package.files or ():
            found.setdefault(path.parts[0].partition(".")[0], set()).add(name)
    return found
