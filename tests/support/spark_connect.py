"""A Spark Connect server on the loopback interface, within the JVM of the tests' session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jobs.testbed.ports import free_ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOST = "127.0.0.1"


@contextmanager
def connect_server(spark: SparkSession) -> Iterator[str]:
    """Serve Spark Connect for as long as this lasts; gives the address for SPARK_REMOTE.

    The same service as `start-connect-server.sh` runs, from the jar in the pip package. Clients
    get sessions of their own, with the server's jars and SQL extensions, so with Delta.
    """
    context: Any = spark.sparkContext
    jvm = context._jvm
    (port,) = free_ports(1)
    settings = jvm.org.apache.spark.SparkEnv.get().conf()
    settings.set("spark.connect.grpc.binding.address", HOST)
    settings.set("spark.connect.grpc.binding.port", f"{port}")
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    service.start(context._jsc.sc())
    try:
        yield f"sc://{HOST}:{port}"
    finally:
        nothing = jvm.scala.Option.empty()
        service.stop(nothing, nothing)
