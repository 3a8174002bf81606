"""What breaks Spark's driver itself, in a sentence: its JVM was killed, or has no memory left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError

from metrics.common.errors import ConfigError, RedlineError

_NO_MEMORY = ("java.lang.OutOfMemoryError", "INVALID_DRIVER_MEMORY")
_STOPPED = "Cannot call methods on a stopped SparkContext"  # its JVM is on its way out
_REMEDY = (
    "give it more by spark.driver.memory (of the redline command: SPARK_DRIVER_MEMORY=2g), or give "
    "this machine more; a run goes on with --resume"
)


class SparkFailedError(ConfigError):
    """Spark's driver cannot go on, or cannot start, on this machine as it is set up."""


@contextmanager
def report_spark_failures() -> Iterator[None]:
    """What the end of Spark's driver breaks in here is told as such.

    Raises:
        SparkFailedError: its JVM ended, or is out of memory.
    """
    try:
        yield
    except RedlineError:  # told already
        raise
    except Exception as error:
        told = failure_of(error)
        if told is None:
            raise
        raise told from error


def failure_of(error: BaseException) -> SparkFailedError | None:
    """How an error tells that Spark's driver cannot go on; None of any other."""
    at: BaseException | None = error
    is_lost = False
    while at is not None:
        if isinstance(at, Py4JJavaError):
            text = _java_text(at)
            if text is not None and any(each in text for each in _NO_MEMORY):
                return SparkFailedError(f"Spark's driver has too little memory; {_REMEDY}")
            is_lost = is_lost or text is None or _STOPPED in text
        elif isinstance(at, Py4JError) or _STOPPED in _python_text(at):
            is_lost = True  # an error of Py4J and none of Java's: nobody answers any more
        at = at.__cause__ or at.__context__
    if not is_lost:
        return None
    return SparkFailedError(
        "Spark's driver ended while it was needed: its JVM was killed, or has no memory left; "
        f"what was finished before is kept; {_REMEDY}"
    )


def _python_text(error: BaseException) -> str:
    """What an error says; one that PySpark made of Java's asks a JVM for it, which may be gone."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the error that is told is the first one
        return ""


def _java_text(error: Py4JJavaError) -> str | None:
    """What Java says of its error and those behind it; None where it cannot even say that."""
    words, at = [], error.java_exception
    try:
        while at is not None:
            words.append(str(at.toString()))
            at = at.getCause()
    except Exception:  # noqa: BLE001 - whatever it is: Java does not answer about its own error
        return None
    return "\n".join(words)
