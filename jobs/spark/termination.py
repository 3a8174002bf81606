"""SIGTERM to spark-submit, passed on to the driver's Python, which knows how to end a run.

Under spark-submit the process that a scheduler or a container's runtime knows is the JVM. Left to
itself it leaves at once, and the driver's Python learns of it by a broken connection: no topic is
deleted, nothing is said. With this it stays until its Python has ended, whose exit code, 143, is
then its own, as it is of any other run (`org.apache.spark.deploy.PythonRunner`).
"""

from __future__ import annotations

import logging
import os
from typing import Any

from py4j.protocol import Py4JError

from metrics.sources.java_class import compiled

_log = logging.getLogger(__name__)
_NAME = "RedlineTermination"
_SOURCE = """
public class RedlineTermination implements sun.misc.SignalHandler {
    private String pid;

    public void passOnTo(String driver) {
        pid = driver;
        sun.misc.Signal.handle(new sun.misc.Signal("TERM"), this);
    }

    public void handle(sun.misc.Signal signal) {
        try {
            String[] command = new String[] {"/bin/sh", "-c", "kill -TERM " + pid};
            if (new ProcessBuilder(command).start().waitFor() == 0) {
                return;
            }
        } catch (Exception gone) {
            // Then there is nobody to tell.
        }
        System.exit(143);
    }
}
"""
"""Compiled by Janino, hence the plain style. The shell has a `kill` where the system has none."""


def pass_on_termination(jvm: Any) -> None:
    """From now on SIGTERM to this driver's JVM is one to this process.

    Args:
        jvm: py4j's view of the JVM.
    """
    try:
        compiled(jvm, _NAME, _SOURCE).passOnTo(str(os.getpid()))
    except Py4JError as error:  # a JVM without Janino, or without signals
        _log.warning("SIGTERM is not passed on to the driver: %s", str(error)[:300])
