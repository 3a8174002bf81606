"""Failures of Spark's driver: its JVM was killed, or has too little memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from metrics.common.errors import ENDED_SPARK, ConfigError, RedlineError

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError

_NO_MEMORY = ("java.lang.OutOfMemoryError", "INVALID_DRIVER_MEMORY")
_NO_SECRET = "A secret key must be specified"
_REMEDY = (
    "raise spark.driver.memory (for the redline command: SPARK_DRIVER_MEMORY=2g), or give this "
    "machine more memory; --resume continues a run"
)


class SparkFailedError(ConfigError):
    """Spark's driver failed or did not start; the user must change a setting or this machine."""


@contextmanager
def report_spark_failures() -> Iterator[None]:
    """Turn all errors that follow from the end of Spark's driver into one `SparkFailedError`.

    Raises:
        SparkFailedError: the driver's JVM ended, or is out of memory.
    """
    try:
        yield
    except RedlineError:  # already has a message for people
        raise
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        raise failure from error


def failure_of(error: BaseException) -> SparkFailedError | None:
    """The failure of Spark's driver that caused an error; None if the error has another cause."""
    from py4j.protocol import Py4JError, Py4JJavaError

    at: BaseException | None = error
    is_lost = False
    while at is not None:
        if isinstance(at, Py4JJavaError):
            text = _java_text(at)
            if text is not None and any(each in text for each in _NO_MEMORY):
                return SparkFailedError(f"Spark's driver has too little memory; {_REMEDY}")
            if text is not None and _NO_SECRET in text:
                return SparkFailedError(
                    "Spark's authentication is on, but its settings have no secret; expected "
                    "the spark.authenticate.secret of the master and its workers; add it to "
                    "the file of --properties-file, or set spark.authenticate and "
                    "spark.network.crypto.enabled to false there"
                )
            is_lost = is_lost or text is None or any(each in text for each in ENDED_SPARK)
        elif isinstance(at, Py4JError) or any(each in _python_text(at) for each in ENDED_SPARK):
            is_lost = True  # an error of Py4J, not of Java: the JVM does not answer
        at = at.__cause__ or at.__context__
    if not is_lost:
        return None
    return SparkFailedError(
        "Spark's driver ended during the run; expected a driver that runs to the end; possible "
        "causes are a killed JVM, too little memory, and a wrong spark.authenticate.secret; "
        f"finished work is kept; read spark.log, or {_REMEDY}"
    )


def _python_text(error: BaseException) -> str:
    """The message of an error; empty if only the JVM could create the message, and the JVM has
    ended.
    """
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the first error is reported
        return ""


def _java_text(error: Py4JJavaError) -> str | None:
    """Java's messages of an error and its causes; None if the JVM does not answer."""
    words, at = [], error.java_exception
    try:
        while at is not None:
            words.append(str(at.toString()))
            at = at.getCause()
    except Exception:  # noqa: BLE001 - any error here means that the JVM does not answer
        return None
    return "\n".join(words)
