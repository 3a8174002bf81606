"""The forwarding of SIGTERM from spark-submit's JVM to the driver's Python, which ends the run.

Under spark-submit a scheduler or a container's runtime sends SIGTERM to the JVM. By default it
exits at once, so the driver's Python loses its connection before it can delete topics or report the
end. With this handler the JVM waits for its Python and returns Python's exit code, 143, as for any
other run (`org.apache.spark.deploy.PythonRunner`).
"""

from __future__ import annotations

import logging
import os
from typing import Any

from py4j.protocol import Py4JError

from metrics.sources.java_class import compiled, java_source

_log = logging.getLogger(__name__)
_NAME = "RedlineTermination"
_SOURCE = java_source(__package__, _NAME)
"""Java source for Janino, hence the plain style. The shell has its own `kill`."""


def pass_on_termination(jvm: Any) -> None:
    """Forward SIGTERM from this driver's JVM to this process.

    Args:
        jvm: py4j's view of the JVM.
    """
    try:
        compiled(jvm, _NAME, _SOURCE).passOnTo(str(os.getpid()))
    except Py4JError as error:  # a JVM without Janino, or without signals
        _log.warning("SIGTERM is not forwarded to the driver: %s", str(error)[:300])
