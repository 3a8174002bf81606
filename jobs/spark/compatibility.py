"""Whether the Spark of a job is supported: looked at before anything else is done."""

from __future__ import annotations

import os
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from jobs.setup.places import DATABRICKS
from jobs.setup.spark_pairs import SparkPair, installed_delta, require_pair
from metrics.common.errors import ConfigError

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
"""Delta's extension of a session; its class tells whether Delta's jars are there."""
_EXTENSIONS = "spark.sql.extensions"


def require_supported_spark() -> SparkPair:
    """The pair of the Spark that this process uses: the active session's, or the installed one.

    Raises:
        ConfigError: this release of Spark is not supported, the installed Delta does not fit it,
            or the active session has no Delta.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return require_session(active)
    # Under spark-submit the jars of Delta are those of the cluster, whatever is installed here.
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    return require_pair(pyspark.__version__, delta=None if is_submitted else installed_delta())


def used_spark() -> str:
    """The version of the Spark that this process uses."""
    active = SparkSession.getActiveSession()
    return pyspark.__version__ if active is None else active.version


def require_session(session: SparkSession) -> SparkPair:
    """The pair of a session that another program started.

    Raises:
        ConfigError: its release of Spark is not supported, or it has no Delta.
    """
    jvm: Any = getattr(session, "_jvm", None)
    if jvm is None or DATABRICKS in os.environ:  # Databricks has a Delta of its own
        return require_pair(session.version)
    scala = scala_of(jvm)
    pair = require_pair(session.version, scala)
    extensions = session.conf.get(_EXTENSIONS, "") or ""
    if has_class(jvm, EXTENSION) and EXTENSION in extensions:
        return pair
    raise ConfigError(
        f"the active Spark session has no Delta tables ({_EXTENSIONS} is {extensions!r}); expected "
        f"one with {EXTENSION} and its jars; stop it, so that this job starts its own, or start it "
        f"with spark.jars.packages={pair.artifact(scala)}, {_EXTENSIONS}={EXTENSION} and "
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
    )


def scala_of(jvm: Any) -> str:
    """Major and minor number of the Scala of a running Spark.

    Args:
        jvm: py4j's view of the JVM.
    """
    return ".".join(str(jvm.scala.util.Properties.versionNumberString()).split(".")[:2])


def has_class(jvm: Any, name: str) -> bool:
    """Whether a running JVM has a class, such as one of a jar that --jars names.

    Args:
        jvm: py4j's view of the JVM.
    """
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource(name.replace(".", "/") + ".class") is not None
