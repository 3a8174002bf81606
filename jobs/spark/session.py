"""The Spark session of a job: the active session, the session of spark-submit, or a new local
session.

A Java class creates and renames the files of a local session without child processes. PySpark's
package lacks Hadoop's native library. Without this library, Hadoop sets file modes and reads links
with the commands `chmod` and `readlink`. For each appended trial, Hadoop would start `chmod` and
`readlink` about 90 times, which takes a third of the append's CPU time. The Java class has no
lambdas and no type inference, because the compiler Janino does not support them.

SIGTERM is forwarded from spark-submit's JVM to the driver's Python. Python then ends the run. A
scheduler or a container's runtime sends SIGTERM to the JVM. By default the JVM exits at once, so
the driver's Python loses its connection before it can delete topics or report the end. With the
signal handler of this module, the JVM waits for the end of Python. The JVM then ends with Python's
exit code, as at the normal end of a run (`org.apache.spark.deploy.PythonRunner`). If SIGTERM ended
the run, Python's exit code is 143.

Wheels of spark-submit's --py-files are sent again under another suffix, so that executors can
import from them. Spark recognizes archives of Python packages by the suffixes .zip, .egg and .jar.
Spark sends a .whl to the executors, but does not add it to their import path. A wheel is a zip
file.

The module also counts the task slots. The number of task slots is the number of tasks that the
registered executors can run at the same time.
"""

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
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from jobs.setup.ivy import spark_jar
from jobs.setup.jars import delta_jars, java_jar
from jobs.setup.places import archive_path, read_options, secrets_withheld
from jobs.setup.preflight import java_command
from jobs.spark.compatibility import (
    has_class,
    is_submitted,
    require_supported_spark,
    scala_of,
)
from jobs.spark.failures import SparkFailedError, failure_of
from metrics.common.errors import ConfigError
from metrics.reporting.files import open_to_append
from metrics.sources.java_class import compiled, java_source

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

NAME = "LocalFiles"
SETTINGS = {
    "spark.hadoop.fs.file.impl": NAME,
    "spark.hadoop.fs.AbstractFileSystem.file.impl": f"{NAME}$Checked",
}
"""Spark settings that use the class `LocalFiles`."""
COMPILED_WITH = ("hadoop-client-api", "slf4j-api")
"""Jars of Spark that the source of `LocalFiles` needs."""
SOURCE = java_source(__package__, NAME)


_log = logging.getLogger(__name__)
_NAME = "RedlineTermination"
_SOURCE = java_source(__package__, _NAME)
"""Source of the Java class that forwards SIGTERM to the driver's Python. The class has no lambdas
and no type inference, which the compiler Janino does not support. The class sends the signal with
the shell's built-in `kill`, so that no program `kill` must be installed.
"""


def pass_on_termination(jvm: Any) -> None:
    """Forward SIGTERM from this driver's JVM to this process.

    Args:
        jvm: py4j's view of the JVM.
    """
    from py4j.protocol import Py4JError

    try:
        compiled(jvm, _NAME, _SOURCE).passOnTo(str(os.getpid()))
    except Py4JError as error:  # the JVM lacks Janino or signals
        _log.warning("SIGTERM is not forwarded to the driver: %s", str(error)[:300])


_WHEEL = ".whl"


def send_wheels(context: SparkContext) -> list[str]:
    """Send each wheel of --py-files again, with a suffix from which executors can import.

    The function returns the new file names.
    """
    from pyspark import SparkFiles

    given = context.getConf().get("spark.submit.pyFiles") or ""
    names = [Path(path).name for path in given.split(",") if path.endswith(_WHEEL)]
    if not names:
        return []
    # Executors that start later download the files, too, so the files stay with Spark's own files.
    folder = Path(tempfile.mkdtemp(prefix="wheels-", dir=SparkFiles.getRootDirectory()))
    sent = []
    for name in names:
        archive = folder / f"{name.removesuffix(_WHEEL)}.zip"
        # In YARN's cluster mode, Spark does not copy the file: YARN adds it to the driver's path.
        places = (SparkFiles.get(name), *(each for each in sys.path if Path(each).name == name))
        shutil.copyfile(next(filter(os.path.exists, places), places[0]), archive)
        context.addPyFile(str(archive))
        sent.append(archive.name)
    return sent


Answer = TypeVar("Answer")


LOOPBACK = "127.0.0.1"
STOP_TIMEOUT_S = 20.0
_CAUSE_LENGTH = 300

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

# The tables of a run are small. Spark's defaults of 200, 50 and as many tasks as slots only cost
# time, and so does a list of all the table's files in each commit. With such lists, in time zones
# other than UTC, Delta 4.4 reads the whole state of the table twice per commit: an append takes 1.2
# instead of 0.5 CPU-seconds.
SMALL_TABLES = {
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
}

LOCAL = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    # Spark makes the secret of the session, and keeps it in the memory of its JVM.
    "spark.authenticate": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # Generating and compiling Java code for each query costs more than it saves on small tables.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Plans of hundreds of columns are long, and only the disabled UI shows them.
    "spark.sql.ui.explainMode": "simple",
    # Adaptive execution has no use for queries of one task.
    "spark.sql.adaptive.enabled": "false",
    **SMALL_TABLES,
}

QUICK_COMPILER = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=192m")
"""Options for the JVM of a local session. The second compiler of the JVM is off, because it costs
more CPU time than it saves in a short session with small queries. Without the second compiler,
opening the tables and twelve appends took 40 instead of 62 CPU-seconds. The JVM reserves 192 MB for
compiled code. With only one compiler, the JVM reserves by default only 48 MB for compiled code, and
Spark fills this memory.
"""

ONE_COLLECTOR = "-XX:+UseSerialGC"
"""Option for the JVM of a local session. On two cores, concurrent collector threads cost more than
the pauses that they avoid: tests/spark/test_store.py took 81 instead of 92 CPU-seconds."""
_READ_BY_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")

# Application id → scratch folder of a session that this process started.
_scratch: dict[str, Path] = {}


def local_session(
    slots: int | None = None,
    app_name: str = "kafka-redline",
    *,
    log: Path | None = None,
    java_options: Sequence[str] | None = None,
) -> SparkSession:
    """A session that reads and writes Delta tables. `close_session` closes the session.

    If a session is active (in a notebook or on Databricks), the result is the active session. Under
    spark-submit, the session uses spark-submit's master and settings. In all remaining cases, Spark
    starts as `local[slots]` on the loopback interface, and writes nothing to the terminal.

    Args:
        slots: number of tasks that can run at once in a local session; None for the number of
            processors, but at least 2. A barrier stage cannot have more tasks than slots.
        app_name: name of the application.
        log: file for the output of Spark and its Python workers; by default a temporary file.
        java_options: JVM options of a local session; these options replace the options for
            `session_archive`.

    Raises:
        ConfigError: Java or Delta's jars are missing, or this release of Spark is not supported.
        SparkFailedError: Spark did not start.
    """
    from pyspark.sql import SparkSession

    require_supported_spark()
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if is_submitted():
        return _submitted_session(app_name)
    scratch = Path(tempfile.mkdtemp(prefix="redline-spark-"))
    log = log or scratch / "spark.log"
    try:
        options = read_options(session_archive()) if java_options is None else java_options
        conf = _local_conf(slots or max(2, os.cpu_count() or 2), app_name, scratch, options)
        session = _start(conf, log)
    except BaseException:
        if log.parent != scratch or not log.exists():
            shutil.rmtree(scratch, ignore_errors=True)
        raise
    _scratch[session.sparkContext.applicationId] = scratch
    return session


def session_archive() -> Path:
    """The path of the class archive of local sessions, which `jobs.spark.prepare` makes.

    The archive is in the virtual environment, like the jars of its class path.
    """
    import pyspark

    spark = Path(pyspark.__file__).parent
    name = f"spark-{pyspark.__version__}"
    jars = [str(spark), *map(str, [*delta_jars(), *_files_jar()])]
    return archive_path(Path(sys.prefix) / "var" / "classes", name, java_command(), jars)


def _files_jar() -> list[Path]:
    """The jar of `LocalFiles`; empty if it cannot be made, so that Hadoop's own class is used."""
    if os.name != "posix":  # Java has no POSIX permissions on this system
        return []
    try:
        needed = [spark_jar(name) for name in COMPILED_WITH]
        return [java_jar(NAME, SOURCE, needed)]
    except ConfigError as error:
        _log.info("Spark uses Hadoop's own class for files, which takes longer: %s", error)
        return []


def close_session(session: SparkSession, timeout_s: float = STOP_TIMEOUT_S) -> int | None:
    """Stop a session that `local_session` started, and its JVM. Other sessions stay open.

    The function returns the exit code of the JVM; None if the session stays open, or the JVM had
    ended.
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
    """Run an action that waits for Spark jobs. An interrupt cancels the jobs. The library py4j does
    not survive an exception that a signal raises within its calls. The action therefore runs on a
    separate thread, while the calling thread waits.

    Args:
        group: job group for the jobs of the action.
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
    """Cancel the jobs of a group, including jobs that Spark has not received yet.

    Spark before 4.0 cancels only running jobs.
    """
    from py4j.protocol import Py4JError

    context = session.sparkContext
    try:
        _java_context(context).cancelJobGroupAndFutureJobs(group)
    except Py4JError:
        context.cancelJobGroup(group)


def cause_of(error: Py4JJavaError) -> str:
    """The line with the cause in a long Java error; see `cause_in`."""
    return cause_in(str(error.java_exception.getMessage() or error)) or type(error).__name__


def cause_in(text: str) -> str:
    """The line with the cause in the message of a failed Spark job.

    The cause is the last line of a Python traceback, the second line of a failed barrier stage, or
    otherwise the first line.
    """
    message = text.split("\n\tat ", 1)[0]
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if not lines:
        return ""
    if any("Traceback (most recent call last)" in line for line in lines):
        line = lines[-1]
    else:
        line = lines[1] if len(lines) > 1 and "failed barrier" in lines[0] else lines[0]
    return line[:_CAUSE_LENGTH]


def _local_conf(slots: int, app_name: str, scratch: Path, java_options: Sequence[str]) -> SparkConf:
    from pyspark import SparkConf

    conf = SparkConf()
    conf.setMaster(f"local[{slots}]").setAppName(app_name)
    conf.setAll([*DELTA.items(), *LOCAL.items()])
    own_files = _files_jar()
    if own_files:
        conf.setAll(list(SETTINGS.items()))
    # On the class path of the JVM itself, because a class archive excludes other class loaders.
    conf.set("spark.driver.extraClassPath", os.pathsep.join(map(str, [*delta_jars(), *own_files])))
    conf.set("spark.local.dir", str(scratch / "local"))
    conf.set("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    options = [
        f"-Dderby.system.home={scratch}",
        *short_lived_jvm_options(os.environ),
        *java_options,
    ]
    conf.set("spark.driver.extraJavaOptions", shlex.join(options))
    # Workers import this project's packages from the same folder as this process.
    conf.set("spark.executorEnv.PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    return conf


def short_lived_jvm_options(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Options of a JVM that runs for minutes, in addition to Java's environment variables.

    If the environment already chooses a garbage collector, the result chooses none, because a JVM
    with two collectors does not start.
    """
    chosen = " ".join(environ.get(name, "") for name in _READ_BY_JAVA)
    is_chosen = re.search(r"-XX:\+Use\w+GC\b", chosen) is not None
    return QUICK_COMPILER if is_chosen else (*QUICK_COMPILER, ONE_COLLECTOR)


def _start(conf: SparkConf, log: Path) -> SparkSession:
    import pyspark
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    java_command()  # its message is shorter than the message of Spark's launcher
    os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    os.environ["PYSPARK_PYTHON"] = sys.executable  # otherwise workers run any python3 on PATH
    # A SPARK_HOME of another version would start jars that do not work with this pyspark.
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open_to_append(log) as stream:
            # These streams also keep the JVM's start-up messages off the terminal.
            launch: Any = launch_gateway  # it has no types
            with secrets_withheld():  # from the JVM, and from the Python workers that it starts
                gateway = launch(conf, {"stdout": stream, "stderr": stream})
        with _context_start():
            context = SparkContext(conf=conf, gateway=gateway)
    except SparkFailedError as error:
        raise SparkFailedError(f"{error}. Spark's output is in {log}.") from error
    except (PySparkException, OSError) as error:
        raise SparkFailedError(f"Spark did not start ({error}). Its output is in {log}.") from error
    context.setLogLevel("WARN")
    _log_server_errors(context)
    return SparkSession.builder.getOrCreate()


@contextmanager
def _context_start() -> Iterator[None]:
    """Keep Python's handler of SIGINT while Spark's context is created, and explain failures.

    PySpark's handler cancels all jobs over a connection on which Python still waits for a job, so
    an interrupt looks like a network error. Python's handler raises KeyboardInterrupt instead. The
    code that catches KeyboardInterrupt closes the session, and this ends the jobs.

    Raises:
        SparkFailedError: Spark did not start.
    """
    from py4j.protocol import Py4JJavaError

    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except Py4JJavaError as error:
        cause = SparkFailedError(f"Spark did not start ({cause_of(error)})")
        raise failure_of(error) or cause from error
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def _log_server_errors(context: SparkContext) -> None:
    """Log errors of PySpark's accumulator server, instead of printing them as tracebacks. The
    accumulator server fails in the middle of a request if the JVM, its client, is killed.
    """
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_request: _log.warning("PySpark's server", exc_info=True)


def _submitted_session(app_name: str) -> SparkSession:
    """The session of spark-submit. Delta's jars are added if they are missing."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    # A session takes its SQL extensions from the settings of the context, not of the builder.
    conf = apply_small_table_settings(SparkConf().setAppName(app_name))
    conf.setAll(list(DELTA.items()))
    with _context_start():
        context = SparkContext.getOrCreate(conf)
    pass_on_termination(_jvm(context))
    _log_server_errors(context)
    context.setLogLevel("ERROR")
    send_wheels(context)
    builder = SparkSession.builder.appName(app_name)
    if not has_class(_jvm(context), DELTA["spark.sql.extensions"]):
        _add_jars(context, delta_jars(context.version, scala_of(_jvm(context))))
    for key, value in DELTA.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def apply_small_table_settings(conf: SparkConf) -> SparkConf:
    """Add the settings of `SMALL_TABLES` that spark-submit did not set; return `conf`."""
    for name, value in SMALL_TABLES.items():
        conf.setIfMissing(name, value)
    return conf


def _add_jars(context: SparkContext, jars: Iterable[Path]) -> None:
    """Add jars to a running driver and its executors, as spark-submit --jars does."""
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
    """End the JVM before this Python ends. The JVM exits when its standard input closes."""
    from pyspark import SparkContext

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


DEADLINE_S = 60.0
"""Longest wait for executors [s]. Executors register seconds after the driver, or within a minute
if a container must be downloaded first."""
SETTLED_S = 5.0
"""Time without a new executor after which all executors count as registered [s]; used if the
settings do not give the number of executors."""
_POLL_S = 0.1


@dataclass(frozen=True)
class Slots:
    """The number of task slots, and the time spent waiting for them.

    Attributes:
        count: number of slots at the end of the wait.
        waited_s: length of the wait [s].
    """

    count: int
    waited_s: float


def registered_slots(context: SparkContext) -> int:
    """Number of tasks that can run at the same time on the executors that have registered so far.

    Spark compares this number with the number of tasks of a barrier stage.
    """
    java: Any = context._jsc.sc()
    return int(java.maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile()))


def await_slots(
    count: Callable[[], int],
    wanted: int | None,
    deadline_s: float = DEADLINE_S,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Slots:
    """Wait until there are `wanted` slots, or until the deadline.

    Args:
        count: returns the current number of slots.
        wanted: number of slots to wait for; None to wait until the number has not changed for
            `SETTLED_S`.
        clock, pause: functions for the time [s] and for a pause [s]; tests replace these functions.
    """
    began_s = changed_s = clock()
    seen = count()
    while True:
        now_s = clock()
        is_settled = seen > 0 and now_s - changed_s >= SETTLED_S
        is_enough = is_settled if wanted is None else seen >= wanted
        if is_enough or now_s - began_s >= deadline_s:
            return Slots(seen, now_s - began_s)
        pause(_POLL_S)
        current = count()
        if current != seen:
            seen, changed_s = current, clock()
