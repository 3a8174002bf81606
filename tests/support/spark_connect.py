"""A Spark Connect server on loopback, in the JVM of the tests' session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jobs.testbed.places import free_ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOST = "127.0.0.1"


@contextmanager
def connect_server(spark: SparkSession) -> Iterator[str]:
    """Serve Spark Connect within this context, and yield the address for SPARK_REMOTE.

    It is the service of `start-connect-server.sh`, from the jar in the pip package. Clients get
    their own sessions with the server's jars and SQL extensions, including Delta's.
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
