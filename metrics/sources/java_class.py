"""Java classes of ours in a JVM that has Janino, the compiler that Spark brings."""

from __future__ import annotations

import uuid
from typing import Any


def compiled(jvm: Any, name: str, source: str) -> Any:
    """A new object of a class.

    It gets a name of its own: py4j remembers methods by class name, so a second class of the
    same name in one JVM, loaded by another compiler, would be called through the first one's
    methods.

    Args:
        jvm: py4j's view of the JVM.
        name: of the class, as the source has it.
        source: Java without lambdas and type inference, which Janino does not know.
    """
    own_name = f"{name}{uuid.uuid4().hex}"
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(source.replace(name, own_name))
    return compiler.getClassLoader().loadClass(own_name).newInstance()
