"""Broker metrics through the `jmxquery` package, where the driver has no JVM.

Each poll of a broker starts a JVM (about 0.35 s, 0.4 core-seconds), so one call reads everything
of a broker, and the interval between samples is some seconds. A sample has the time of its end:
the call is mostly the start of the JVM, which reads the values in its last milliseconds.
"""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import jmxquery

from metrics.common.errors import ConfigError
from metrics.sources.access import JmxAccess
from metrics.sources.bean_poller import BeanPoller, BeanValue, PollError
from metrics.sources.jmxquery_program import ask
from metrics.sources.probe import unreachable
from metrics.sources.source import JmxEndpoint

# Its errors are in exceptions and samples; its log would repeat them on the console.
logging.getLogger("jmxquery").setLevel(logging.CRITICAL)


class JmxQuerySource(BeanPoller[JmxEndpoint]):
    """JMX through one new JVM for each broker and sample.

    Args:
        endpoints, deadline_s, clock: as in `BeanPoller`.
        java: path or name of the `java` command.
        access: the login for JMX; None when it is open.

    Raises:
        ConfigError: JMX speaks TLS, which the package's program does not support.
    """

    name = "jmxquery"

    def __init__(
        self,
        endpoints: Sequence[JmxEndpoint],
        deadline_s: float,
        java: str = "java",
        clock: Callable[[], float] = time.time,
        access: JmxAccess | None = None,
    ) -> None:
        if access is not None and access.is_tls:
            raise ConfigError(
                "JMX with TLS is read through the driver's own JVM, and this Spark session has "
                "none (Spark Connect or serverless); expected jmx.tls: false, "
                "metrics.prometheus, or a session with a JVM"
            )
        super().__init__(endpoints, deadline_s, clock)
        self._access = access
        self._java = java

    def unreachable(self, endpoint: JmxEndpoint, error: str) -> ConfigError:
        """See `BeanPoller.unreachable`."""
        return unreachable(endpoint, error)

    def poll(
        self, endpoint: JmxEndpoint, beans: Mapping[str, Sequence[str]], timeout_s: float
    ) -> Iterator[BeanValue]:
        """See `BeanPoller.poll`."""
        # A key in the query makes JMXQuery send it twice and return all items each time.
        queries = [jmxquery.JMXQuery(name, each) for name in beans for each in beans[name]]
        connection = jmxquery.JMXConnection(endpoint.url, java_path=self._java)
        try:
            results = ask(connection, queries, self._access, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise PollError(f"no answer within {timeout_s:g} s") from error
        except subprocess.CalledProcessError as error:
            output = error.stdout or error.stderr or b""
            raise PollError(output.decode(errors="replace").strip()) from error
        except FileNotFoundError as error:
            raise PollError(f"{self._java!r} is not on the PATH; install Java 17") from error
        except ValueError as error:  # JSON that is cut off
            raise PollError(f"no answer within {timeout_s:g} s") from error
        if not results:
            raise PollError(f"no answer within {timeout_s:g} s")
        return iter(
            BeanValue(each.mBeanName, each.attribute, each.value, each.attributeKey)
            for each in results
        )
