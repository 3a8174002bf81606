"""Java classes of ours in a JVM that has Janino, the compiler that Spark brings."""

from __future__ import annotations

import uuid
from typing import Any


def compiled(jvm: Any, name: str, source: str) -> Any:
    """A new object of a class, which gets a name of its own.

    Args:
        jvm: py4j's view of the JVM.
        name: of the class, as the source has it.
        source: Java without lambdas and type inference, which Janino does not know.
    """
    own_name, own_source = named_apart(name, source)
    return _compiler(jvm, own_source).getClassLoader().loadClass(own_name).newInstance()


def bytecodes(jvm: Any, source: str) -> Any:
    """Name → code of the classes of a source, for a class loader that defines them itself."""
    return _compiler(jvm, source).getBytecodes()


def named_apart(name: str, source: str) -> tuple[str, str]:
    """A class's name that no other has, and its source with that name.

    py4j remembers methods by class name, so a second class of the same name in one JVM, loaded
    by another loader, would be called through the first one's methods.
    """
    own_name = f"{name}{uuid.uuid4().hex}"
    return own_name, source.replace(name, own_name)


def _compiler(jvm: Any, source: str) -> Any:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(source)
    return compiler
