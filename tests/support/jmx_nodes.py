"""Small JVMs that answer JMX like a broker; tests stop, kill and restart them."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jobs.testbed.places import free_ports
from tests.support.bare_jvm import java_gateway
from tests.support.processes import becomes, thread_states

_BEANS = Path(__file__).with_name("Beans.java").read_text(encoding="utf-8")


OPEN = ("authenticate=false", "ssl=false")


class JmxNode:
    """A node with the beans that identify a broker, and those of every JVM.

    Args:
        port: by default a free one.
        access: options of `com.sun.management.jmxremote`.
        leaders: value of the bean LeaderCount; a function makes an object of the JVM.
    """

    def __init__(
        self,
        node_id: int,
        port: int | None = None,
        access: Sequence[str] = OPEN,
        leaders: int | Callable[[Any], Any] = 10,
    ) -> None:
        port = port or free_ports(1)[0]
        self.address = f"127.0.0.1:{port}"
        prefix = "-Dcom.sun.management.jmxremote"
        self._gateway, self._process = java_gateway(
            [
                f"{prefix}.port={port}",
                f"{prefix}.rmi.port={port}",
                f"{prefix}.host=127.0.0.1",
                *(f"{prefix}.{option}" for option in access),
                "-Djava.rmi.server.hostname=127.0.0.1",
                "-Xmx32m",
                "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC",
            ]
        )
        compiler = self._gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(_BEANS)
        loaded = compiler.getClassLoader().loadClass("Beans").newInstance()
        value = leaders(self._gateway.jvm) if callable(leaders) else leaders
        loaded.register(node_id, value)
        self._beans = loaded
        # py4j's objects are in reference cycles; if collected after the kill, they call the JVM.
        del compiler, loaded, value
        gc.collect()

    def add_meter(self, object_name: str) -> None:
        """Register another meter, as Kafka does when the meter is first used."""
        self._beans.add(object_name)

    def hang(self) -> None:
        """Stop all threads of the process; its connections stay open."""
        os.kill(self._process.pid, signal.SIGSTOP)
        assert becomes(lambda: thread_states(self._process.pid) == {"T"})

    def resume(self) -> None:
        """Continue the stopped process."""
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._beans = None
        gc.collect()
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        self._gateway.close()

    def __enter__(self) -> JmxNode:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
