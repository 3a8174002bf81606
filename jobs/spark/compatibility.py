"""The first checks of a job: they check its Spark, and the storage location of its tables.

Several runs must be able to write to the Delta tables at the same time. A commit of Delta creates
the next file of the table's log, and must fail if that file exists. HDFS, Azure, Google Cloud
Storage and local disks can create a file only if it does not exist. On S3, Delta creates files
without this condition. With Delta's default LogStore for S3, `S3SingleDriverLogStore`, a second
driver can overwrite a commit of the first driver (docs.delta.io, "Storage configuration"). Runs,
series of nightly runs and notebooks share their tables, so a run refuses a storage location without
safe commits. Databricks has its own commit service.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jobs.setup.places import DATABRICKS
from jobs.setup.preflight import java_problem, this_machine
from jobs.setup.releases import SparkPair, installed_delta, require_pair
from metrics.common.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
"""The class of Delta's extension of a Spark session. If this class exists, the JVM has Delta's
jars.
"""
_EXTENSIONS = "spark.sql.extensions"


def require_supported_spark() -> SparkPair:
    """The supported pair of Spark and Delta for the active session, or for the installed Spark.

    Raises:
        ConfigError: the session is a Spark Connect session, this release of Spark is not supported,
            the installed Delta does not work with this Spark, the active session has no Delta, or
            Java is too old or too new for a session.
    """
    import pyspark
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote() or "SPARK_REMOTE" in os.environ:
        raise ConfigError(
            "the session is a Spark Connect session (SPARK_REMOTE, shared access mode, "
            "serverless), which cannot run RDD stages; expected a classic session, because "
            "producers are tasks of such a stage; unset SPARK_REMOTE, use spark-submit, or use a "
            "cluster with dedicated access mode. Notebooks can read the tables with any session"
        )
    active = SparkSession.getActiveSession()
    if active is not None:
        return require_session(active)
    # Under spark-submit, the cluster provides the jars of Delta, whatever is installed here.
    if not is_submitted() and (problem := java_problem(this_machine())) is not None:
        raise ConfigError(problem)
    return require_pair(pyspark.__version__, delta=None if is_submitted() else installed_delta())


def is_submitted() -> bool:
    """Whether spark-submit started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def used_spark() -> str:
    """The version of the Spark that this process uses."""
    import pyspark
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    return pyspark.__version__ if active is None else active.version


def require_session(session: SparkSession) -> SparkPair:
    """The supported pair of Spark and Delta for a session that another program has started.

    Raises:
        ConfigError: the session's release of Spark is not supported, or the session has no Delta.
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
        f"{EXTENSION} and its jars; stop the session, so that this job starts its own, or start it "
        f"with spark.jars.packages={pair.artifact(scala)}, {_EXTENSIONS}={EXTENSION} and "
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
    )


def scala_of(jvm: Any) -> str:
    """Major and minor number of the Scala version of a running Spark.

    Args:
        jvm: py4j's view of the JVM.
    """
    return ".".join(str(jvm.scala.util.Properties.versionNumberString()).split(".")[:2])


def has_class(jvm: Any, name: str) -> bool:
    """Whether a running JVM has a class, for example from a jar in --jars.

    Args:
        jvm: py4j's view of the JVM.
    """
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource(name.replace(".", "/") + ".class") is not None


S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})
SAFE = "io.delta.storage.S3DynamoDBLogStore"
"""Delta's LogStore for several writers on S3. This LogStore uses a table of DynamoDB."""
SINGLE_DRIVER = "spark.redline.tables.single_driver"
"""Setting with which a user states that only one run at a time writes to the tables."""
_DEFAULT = "S3SingleDriverLogStore"
_UNSAFE = frozenset({_DEFAULT, "HDFSLogStore", "LocalLogStore", "AzureLogStore", "GCSLogStore"})
"""LogStores of Delta that are not safe for a second writer on S3."""
_DATABRICKS_COMMITS = "spark.databricks.delta.multiClusterWrites.enabled"
_SCHEME = re.compile(r"([A-Za-z][\w+.-]*):")


def require_safe_commits(spark: SparkSession, tables: str) -> None:
    """Require that several runs can write to the storage location of the tables at the same time.

    Args:
        tables: path of the tables, or name of their schema, as in
            `metrics.tables.store.TableStore`.

    Raises:
        ConfigError: at this storage location, one run can overwrite the Delta commits of another
            run.
    """
    context: Any = spark.sparkContext
    settings = dict(context.getConf().getAll())
    place = tables if "/" in tables else _schema_location(spark, tables)
    if place is None:
        return
    scheme = scheme_of(place) or _default_scheme(spark)
    problem = commit_problem(place, scheme, settings, on_databricks=DATABRICKS in os.environ)
    if problem is None and scheme in S3_SCHEMES:
        problem = _missing_class(log_store(scheme, settings), context._jvm)
    if problem is not None:
        raise ConfigError(problem)


def commit_problem(
    place: str, scheme: str, settings: Mapping[str, str], *, on_databricks: bool = False
) -> str | None:
    """Reason why one run could overwrite the commits of another run, with the remedy; None if
    commits are safe.

    Args:
        place: address of the tables, for the message.
        scheme: scheme of the address, or of Spark's default file system.
        settings: settings of the Spark context, from which Delta chooses its LogStore.
        on_databricks: whether the session is a session of a Databricks runtime.
    """
    is_single = settings.get(SINGLE_DRIVER, "").strip().lower() == "true"
    if scheme not in S3_SCHEMES or is_single:
        return None
    if on_databricks:
        if settings.get(_DATABRICKS_COMMITS, "true").strip().lower() != "false":
            return None
        return (
            f"{place} is on {scheme}:, and {_DATABRICKS_COMMITS} is false, so that simultaneous "
            f"commits of two runs are lost; expected true; remove the setting"
        )
    name = log_store(scheme, settings)
    if name.rpartition(".")[2] not in _UNSAFE:
        return None
    return (
        f"{place} is on {scheme}:, where Delta's {name.rpartition('.')[2]} can lose commits if two "
        f"runs write at the same time; expected a LogStore for several writers; set "
        f"spark.delta.logStore.{scheme}.impl={SAFE}, spark.io.delta.storage.S3DynamoDBLogStore."
        "ddb.tableName and spark.io.delta.storage.S3DynamoDBLogStore.ddb.region in all sessions "
        "(docs/deploy names the jars), or name another place with --tables; if only one run at a "
        f"time ever writes to this place, set {SINGLE_DRIVER}=true"
    )


def scheme_of(address: str) -> str:
    """The scheme of an address, in lower case; empty if the address has none."""
    found = _SCHEME.match(address)
    return found[1].lower() if found else ""


def log_store(scheme: str, settings: Mapping[str, str]) -> str:
    """The class of the LogStore that Delta chooses. The keys in `settings` may have the prefix
    `spark.`, or may lack it.

    Delta refuses a session in which one key has different values with and without the prefix
    `spark.`.
    """
    for key in ("delta.logStore.class", f"delta.logStore.{scheme}.impl"):
        name = (settings.get(f"spark.{key}") or settings.get(key) or "").strip()
        if name and not name.endswith("DelegatingLogStore"):  # that class chooses by the scheme
            return name
    return _DEFAULT


def _missing_class(name: str, jvm: Any) -> str | None:
    if "." not in name or has_class(jvm, name):
        return None
    return (
        f"Delta's LogStore {name} is in no jar of this session; expected its jar on the class "
        "path; add the jar with --packages (docs/deploy names the jars), or correct the setting"
    )


def _schema_location(spark: SparkSession, schema: str) -> str | None:
    """The location of a schema that exists or will be created; None if it is unknown.

    A catalog such as Unity Catalog can create a new schema at any location.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return spark.catalog.getDatabase(schema).locationUri or None
    except (PySparkException, Py4JJavaError):  # a new schema, or a schema that cannot be created
        return None if "." in schema else spark.conf.get("spark.sql.warehouse.dir", None)


def _default_scheme(spark: SparkSession) -> str:
    """The scheme of Hadoop's default file system. An address without a scheme belongs to this file
    system.
    """
    context: Any = spark.sparkContext
    files = context._jvm.org.apache.hadoop.fs.FileSystem
    return str(files.getDefaultUri(context._jsc.hadoopConfiguration()).getScheme() or "").lower()
