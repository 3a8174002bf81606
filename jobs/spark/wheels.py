"""Wheels of spark-submit's --py-files, sent so that executors can import from them.

Spark recognizes archives of Python packages by the suffix .zip, .egg or .jar: it sends a .whl to
the executors, but does not add it to their import path. A wheel is a zip file, so this module sends
it again under that suffix.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pyspark import SparkContext, SparkFiles

_WHEEL = ".whl"


def send_wheels(context: SparkContext) -> list[str]:
    """Send each wheel of --py-files again under a name that executors import from.

    It returns these names.
    """
    given = context.getConf().get("spark.submit.pyFiles") or ""
    names = [Path(path).name for path in given.split(",") if path.endswith(_WHEEL)]
    if not names:
        return []
    # Executors that start later download the files too, so they stay with Spark's own files.
    folder = Path(tempfile.mkdtemp(prefix="wheels-", dir=SparkFiles.getRootDirectory()))
    sent = []
    for name in names:
        archive = folder / f"{name.removesuffix(_WHEEL)}.zip"
        shutil.copyfile(SparkFiles.get(name), archive)
        context.addPyFile(str(archive))
        sent.append(archive.name)
    return sent
