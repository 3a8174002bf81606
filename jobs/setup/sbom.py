"""The bill of materials of a release: `python -m jobs.setup.sbom FILE` writes CycloneDX JSON.

The bill of materials lists the packages that an installed wheel needs. The packages have the
versions that set-up installs (conf/constraints.txt). The bill also lists the jars that the wheel
downloads (conf/jars.sha256).
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from jobs.setup.bootstrap import RUN_EXTRAS
from jobs.setup.jars import pins
from jobs.setup.version import __version__

NAME = "kafka-redline"
LICENSE = "Apache-2.0"


def bill() -> dict[str, Any]:
    """The bill of materials as a document. The document has no time stamp, so that equal versions
    of packages and jars give equal documents.
    """
    packages = {name: importlib.metadata.version(name) for name in sorted(needed(NAME))}
    jars = {(name, digest) for each in pins().values() for name, digest in each.items()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": f"pkg:pypi/{NAME}@{__version__}",
                "name": NAME,
                "version": __version__,
                "purl": f"pkg:pypi/{NAME}@{__version__}",
                "licenses": [{"license": {"id": LICENSE}}],
            }
        },
        "components": [
            *(_package(name, version) for name, version in packages.items()),
            *(_jar(name, digest) for name, digest in sorted(jars)),
        ],
    }


def needed(name: str) -> set[str]:
    """All packages that a package needs, directly or indirectly, for runs on this system."""
    found, left = set[str](), {*_requirements(name, RUN_EXTRAS)}
    while left:
        found |= left
        left = {each for known in left for each in _requirements(known)} - found
    return found


def _requirements(name: str, extras: Iterable[str] = ()) -> Iterator[str]:
    for text in importlib.metadata.requires(name) or ():
        wanted = Requirement(text)
        chosen = ("", *extras)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": e}) for e in chosen):
            yield canonicalize_name(wanted.name)


def _package(name: str, version: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _jar(name: str, digest: str) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": f"{name}-{digest[:12]}",
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(bill(), indent=1) + "\n", encoding="utf-8")
