"""Wheels that spark-submit was given with --py-files, made importable on executors.

Spark takes archives for Python packages by their suffix, .zip, .egg or .jar: it sends a .whl
to the executors, but leaves it off their path. A wheel is a zip file, so it goes again as one.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pyspark import SparkContext, SparkFiles

_WHEEL = ".whl"


def send_wheels(context: SparkContext) -> list[str]:
    """Send each wheel of --py-files once more, under a name that executors import from.

    Returns the names that executors know them by.
    """
    given = context.getConf().get("spark.submit.pyFiles") or ""
    names = [Path(path).name for path in given.split(",") if path.endswith(_WHEEL)]
    if not names:
        return []
    # Executors that start later ask for the files too, so they stay as long as Spark's own.
    folder = Path(tempfile.mkdtemp(prefix="wheels-", dir=SparkFiles.getRootDirectory()))
    sent = []
    for name in names:
        archive = folder / f"{name.removesuffix(_WHEEL)}.zip"
        shutil.copyfile(SparkFiles.get(name), archive)
        context.addPyFile(str(archive))
        sent.append(archive.name)
    return sent
