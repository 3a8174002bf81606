"""A JVM that reads JMX as Spark's driver does, without Spark."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway


def java_gateway(options: Sequence[str]) -> tuple[JavaGateway, subprocess.Popen[bytes]]:
    """A gateway to a JVM that has only Spark's Java compiler, and the JVM's process."""
    import pyspark
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    jars = Path(pyspark.__file__).parent.glob("jars/*.jar")
    names = ("janino", "commons-compiler")
    classpath = ":".join(str(jar) for jar in jars if jar.name.startswith(names))
    launched: Any = launch_gateway(
        classpath=classpath, javaopts=list(options), die_on_exit=True, return_proc=True
    )
    port, process = launched
    return JavaGateway(gateway_parameters=GatewayParameters(port=port)), process


@contextmanager
def bare_jvm(*options: str) -> Iterator[tuple[Any, int]]:
    """The py4j view of such a JVM, and its process id."""
    gateway, process = java_gateway(options)
    try:
        yield gateway.jvm, process.pid
    finally:
        gateway.close()
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
