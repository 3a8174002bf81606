"""SIGTERM to spark-submit, passed on to the driver's Python, which knows how to end a run.

Under spark-submit the process that a scheduler or a container's runtime knows is the JVM. Left to
itself it leaves at once, and the driver's Python learns of it by a broken connection: no topic is
deleted, nothing is said. With this it stays until its Python has ended, whose exit code, 143, is
then its own, as it is of any other run (`org.apache.spark.deploy.PythonRunner`).
"""

from __future__ import annotations

import os
from typing import Any

from metrics.sources.java_class import compiled

_NAME = "RedlineTermination"
_SOURCE = """
public class RedlineTermination implements sun.misc.SignalHandler {
    private long pid;

    public void passOnTo(long driver) {
        pid = driver;
        sun.misc.Signal.handle(new sun.misc.Signal("TERM"), this);
    }

    public void handle(sun.misc.Signal signal) {
        java.util.Optional driver = ProcessHandle.of(pid);
        if (!driver.isPresent() || !((ProcessHandle) driver.get()).destroy()) {
            System.exit(143);
        }
    }
}
"""
"""Compiled by Janino, hence the plain style. `destroy` is SIGTERM to another process."""


def pass_on_termination(jvm: Any) -> None:
    """From now on SIGTERM to this driver's JVM is one to this process.

    Args:
        jvm: py4j's view of the JVM.
    """
    compiled(jvm, _NAME, _SOURCE).passOnTo(os.getpid())
