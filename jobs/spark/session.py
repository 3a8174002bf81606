"""The Spark session of a job: the one that is there, spark-submit's, or a quiet local one."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from jobs.setup.child_environment import secrets_withheld
from jobs.setup.class_archive import archive_path, read_options
from jobs.setup.ivy import spark_jar
from jobs.setup.jars import delta_jars
from jobs.setup.java_jar import java_jar
from jobs.setup.preflight import java_command
from jobs.spark import files_java
from jobs.spark.failures import SparkFailedError, failure_of
from jobs.spark.termination import pass_on_termination
from jobs.spark.wheels import send_wheels
from metrics.common.errors import ConfigError

Answer = TypeVar("Answer")

_log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
STOP_TIMEOUT_S = 20.0
_CAUSE_LENGTH = 300

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

# The tables of a run are small: Spark's defaults of 200, 50 and as many tasks as there are slots
# only cost time, and so does each commit that writes down all files of the table. With those, where
# the clock is not UTC's, Delta 4.4 reads the whole state of the table again, twice per commit: an
# append takes 1.2 CPU-seconds in place of 0.5.
SMALL_TABLES = {
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
}

LOCAL = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # Java code made and compiled for each query costs more than it saves on small tables.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # A plan of hundreds of columns is long, and with the UI off nobody reads it.
    "spark.sql.ui.explainMode": "simple",
    # Nor is there anything to adapt in queries of one task.
    "spark.sql.adaptive.enabled": "false",
    **SMALL_TABLES,
}

QUICK_COMPILER = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=192m")
"""For the JVM of a local session, which lives for minutes and plans small queries: what its second
compiler makes costs more than it saves, on the cores that make the load. Opening the tables and
twelve appends took 40 CPU-seconds in place of 62, and 30 s in place of 36. With one compiler the
JVM has 48 MB for compiled code, which Spark fills: to sweep that and to compile again took 25 of
the 147 CPU-seconds of tests/spark/test_store.py."""

ONE_COLLECTOR = "-XX:+UseSerialGC"
"""Of the same JVM: threads that collect beside the others cost more on two cores than the pauses
that they avoid. tests/spark/test_store.py took 81 CPU-seconds in place of 92."""
_READ_BY_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")

# Scratch folders of the sessions that this process started, by application id.
_scratch: dict[str, Path] = {}


def local_session(
    slots: int | None = None,
    app_name: str = "kafka-redline",
    *,
    log: Path | None = None,
    settings: Mapping[str, str] | None = None,
    java_options: Sequence[str] | None = None,
) -> SparkSession:
    """A session that reads and writes Delta tables; close it with `close_session`.

    Takes the active session where there is one (a notebook, Databricks), builds on
    spark-submit's master and settings under spark-submit, and else starts Spark in this
    machine's `local[slots]`, on the loopback interface and without a word on the terminal.

    Args:
        slots: tasks that can run at once, so the most that a barrier stage can have;
            the number of processors, and at least 2, by default. Local sessions only.
        app_name: the application's name.
        log: where Spark and its Python workers write; a temporary file by default.
        settings: more Spark settings, which win over the defaults.
        java_options: in place of those that start from `session_archive`. Local sessions only.

    Raises:
        ConfigError: no usable Java, or Delta's jars are missing.
        SparkFailedError: Spark did not start.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _submitted_session(app_name, settings or {})
    scratch = Path(tempfile.mkdtemp(prefix="redline-spark-"))
    log = log or scratch / "spark.log"
    try:
        options = read_options(session_archive()) if java_options is None else java_options
        conf = _local_conf(slots or max(2, os.cpu_count() or 2), app_name, scratch, options)
        conf.setAll(list((settings or {}).items()))
        session = _start(conf, log)
    except BaseException:
        if log.parent != scratch or not log.exists():
            shutil.rmtree(scratch, ignore_errors=True)
        raise
    _scratch[session.sparkContext.applicationId] = scratch
    return session


def session_archive() -> Path:
    """Of the classes that a local session loads; set-up leaves it, see `jobs.spark.prepare`.

    It stands in the environment, as the class path that it was made of does.
    """
    spark = Path(pyspark.__file__).parent
    name = f"spark-{pyspark.__version__}"
    jars = [str(spark), *map(str, [*delta_jars(), *_files_jar()])]
    return archive_path(Path(sys.prefix) / "var" / "classes", name, java_command(), jars)


def _files_jar() -> list[Path]:
    """The jar of `files_java`; none where it cannot be made, as Hadoop's own files do as well."""
    if os.name != "posix":  # Java knows no permissions there
        return []
    try:
        needed = [spark_jar(name) for name in files_java.COMPILED_WITH]
        return [java_jar(files_java.NAME, files_java.SOURCE, needed)]
    except ConfigError as error:
        _log.info("Spark writes its files in Hadoop's own way, which takes longer: %s", error)
        return []


def close_session(session: SparkSession, timeout_s: float = STOP_TIMEOUT_S) -> int | None:
    """Stop a session that `local_session` started, and its JVM; leave any other alone.

    Returns the exit code of the JVM; None where it was left alone, or ended before.
    """
    scratch = _scratch.pop(session.sparkContext.applicationId, None)
    if scratch is None:
        return None
    try:
        session.stop()
        return _end_jvm(timeout_s)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def run_interruptibly(session: SparkSession, group: str, action: Callable[[], Answer]) -> Answer:
    """Run an action that waits for Spark jobs, so that an interrupt ends them.

    py4j does not survive an exception that a signal raises inside of its calls, so the
    action runs on a thread of its own and this one only waits.

    Args:
        group: names the action's jobs, which are cancelled when this thread is interrupted.
    """

    def grouped() -> Answer:
        session.sparkContext.setJobGroup(group, group, interruptOnCancel=True)
        return action()

    with ThreadPoolExecutor(1, thread_name_prefix="redline-action") as pool:
        future = pool.submit(grouped)
        try:
            return future.result()
        except KeyboardInterrupt:
            cancel_group(session, group)
            raise


def cancel_group(session: SparkSession, group: str) -> None:
    """End the jobs of a group, also one that is on its way to Spark and not there yet.

    Spark before 4.0 only ends those that run.
    """
    context = session.sparkContext
    try:
        _java_context(context).cancelJobGroupAndFutureJobs(group)
    except Py4JError:
        context.cancelJobGroup(group)


def cause_of(error: Py4JJavaError) -> str:
    """What happened, of a Java error that runs to pages; see `cause_in`."""
    return cause_in(str(error.java_exception.getMessage() or error)) or type(error).__name__


def cause_in(text: str) -> str:
    """The line that says what happened, of the message of a failed Spark job.

    The last of a Python traceback where there is one, the reason of a failed barrier stage,
    which stands on its second line, or the first.
    """
    told = text.split("\n\tat ", 1)[0]
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    if not lines:
        return ""
    if any("Traceback (most recent call last)" in line for line in lines):
        line = lines[-1]
    else:
        line = lines[1] if len(lines) > 1 and "failed barrier" in lines[0] else lines[0]
    return line[:_CAUSE_LENGTH]


def _local_conf(slots: int, app_name: str, scratch: Path, java_options: Sequence[str]) -> SparkConf:
    conf = SparkConf()
    conf.setMaster(f"local[{slots}]").setAppName(app_name)
    conf.setAll([*DELTA.items(), *LOCAL.items()])
    own_files = _files_jar()
    if own_files:
        conf.setAll(list(files_java.SETTINGS.items()))
    # On the JVM's own class path, as an archive has no classes of other loaders.
    conf.set("spark.driver.extraClassPath", os.pathsep.join(map(str, [*delta_jars(), *own_files])))
    conf.set("spark.local.dir", str(scratch / "local"))
    conf.set("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    options = [
        f"-Dderby.system.home={scratch}",
        *short_lived_jvm_options(os.environ),
        *java_options,
    ]
    conf.set("spark.driver.extraJavaOptions", shlex.join(options))
    # Workers import our packages from where this process does, whatever its folder.
    conf.set("spark.executorEnv.PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    return conf


def short_lived_jvm_options(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Options of a JVM that lives for minutes, besides those that Java reads of the environment.

    A JVM that is given two garbage collectors does not start.
    """
    chosen = " ".join(environ.get(name, "") for name in _READ_BY_JAVA)
    is_chosen = re.search(r"-XX:\+Use\w+GC\b", chosen) is not None
    return QUICK_COMPILER if is_chosen else (*QUICK_COMPILER, ONE_COLLECTOR)


def _start(conf: SparkConf, log: Path) -> SparkSession:
    java_command()  # says in one sentence what Spark's launcher would say in many
    os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else workers run whatever python3 is
    # A SPARK_HOME of another version would start jars that do not fit this pyspark.
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("ab") as stream:
            # Own streams also keep the JVM's start-up chatter off the terminal.
            launch: Any = launch_gateway  # it has no types
            with secrets_withheld():  # from the JVM, and from the Python workers that it starts
                gateway = launch(conf, {"stdout": stream, "stderr": stream})
        with _own_interrupts():
            context = SparkContext(conf=conf, gateway=gateway)
    except Py4JJavaError as error:
        why = failure_of(error) or f"Spark did not start ({cause_of(error)})"
        raise SparkFailedError(f"{why}. What Spark said is in {log}.") from error
    except (PySparkException, OSError) as error:
        raise SparkFailedError(
            f"Spark did not start ({error}). What it said is in {log}."
        ) from error
    context.setLogLevel("WARN")
    _log_server_errors(context)
    return SparkSession.builder.getOrCreate()


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep our answer to Ctrl-C while a context is made.

    PySpark's handler cancels the jobs over the very connection that waits for one, so the
    interrupt arrives as a network error. Ours is an ordinary KeyboardInterrupt; whoever
    catches it closes the session, and that ends the jobs.
    """
    ours = signal.getsignal(signal.SIGINT)
    yield
    if ours is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, ours)


def _log_server_errors(context: SparkContext) -> None:
    """Log what breaks in PySpark's own server, which prints it as a traceback.

    A JVM that is killed leaves it in the middle of a conversation.
    """
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_asked: _log.warning("PySpark's server", exc_info=True)


def _submitted_session(app_name: str, settings: Mapping[str, str]) -> SparkSession:
    """The session of spark-submit; Delta is added where the submitter did not name it."""
    # A session takes its SQL extensions from the context's settings, not from the builder's.
    conf = apply_small_table_settings(SparkConf().setAppName(app_name))
    conf.setAll([*DELTA.items(), *settings.items()])
    with _own_interrupts():
        context = SparkContext.getOrCreate(conf)
    pass_on_termination(_jvm(context))
    _log_server_errors(context)
    context.setLogLevel("ERROR")
    send_wheels(context)
    builder = SparkSession.builder.appName(app_name)
    if not _has_class(context, DELTA["spark.sql.extensions"]):
        _add_jars(context, delta_jars())
    for key, value in {**DELTA, **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def apply_small_table_settings(conf: SparkConf) -> SparkConf:
    """`SMALL_TABLES` where the submitter did not choose otherwise."""
    for name, value in SMALL_TABLES.items():
        conf.setIfMissing(name, value)
    return conf


def _has_class(context: SparkContext, name: str) -> bool:
    jvm = _jvm(context)
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    path = name.replace(".", "/") + ".class"
    return loader.getResource(path) is not None


def _add_jars(context: SparkContext, jars: Iterable[Path]) -> None:
    """Add jars to a running driver and to its executors, as spark-submit --jars would have."""
    jvm = _jvm(context)
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for jar in jars:
        loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
        _java_context(context).addJar(str(jar))


def _jvm(context: SparkContext) -> Any:
    return context._jvm


def _java_context(context: SparkContext) -> Any:
    return context._jsc.sc()


def _end_jvm(timeout_s: float) -> int | None:
    """End the JVM now rather than with the interpreter; it exits when its input closes."""
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return None
    SparkContext._gateway = None
    SparkContext._jvm = None
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()
    try:
        return int(process.wait(timeout_s))
    except subprocess.TimeoutExpired:
        process.kill()
        return int(process.wait())
