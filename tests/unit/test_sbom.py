"""The bill of materials lists what an installation runs with, without developers' packages."""

from __future__ import annotations

import importlib.metadata
import json
import re

from jobs.setup.jars import pins
from jobs.setup.sbom import bill, needed


def test_the_bill_names_packages_with_versions_and_jars_with_hashes() -> None:
    document = bill()
    assert json.loads(json.dumps(document)) == document
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    refs = [each["bom-ref"] for each in document["components"]]
    assert len(refs) == len(set(refs))
    purls = {each["purl"] for each in document["components"] if "purl" in each}
    for name in ("pyspark", "delta-spark", "kafka-python", "crc32c", "py4j"):
        assert f"pkg:pypi/{name}@{importlib.metadata.version(name)}" in purls
    hashed = {each["name"]: each["hashes"] for each in document["components"] if "hashes" in each}
    assert set(hashed) == {jar for each in pins().values() for jar in each}
    for ((alg, digest),) in ([tuple(each.values()) for each in of] for of in hashed.values()):
        assert alg == "SHA-256" and re.fullmatch("[0-9a-f]{64}", digest)


def test_developers_packages_are_left_out() -> None:
    found = needed("kafka-redline")
    assert not found & {"pytest", "mypy", "ruff", "playwright"}
    assert "kafka-redline" not in found
