"""Compiling Java classes in a JVM that has Janino, the compiler that Spark brings."""

from __future__ import annotations

import uuid
from importlib.resources import files
from typing import Any


def java_source(package: str | None, name: str) -> str:
    """The file `NAME.java` of a package, also where the package is in a wheel.

    Janino compiles it, hence its plain style: it supports neither lambdas nor type inference.
    """
    return (files(package or "") / f"{name}.java").read_text(encoding="utf-8")


def compiled(jvm: Any, name: str, source: str) -> Any:
    """A new object of a class, which is compiled under a unique name.

    Args:
        jvm: py4j's view of the JVM.
        name: name of the class in the source.
        source: Java without lambdas and type inference, which Janino does not support.
    """
    own_name, own_source = named_apart(name, source)
    return _compiler(jvm, own_source).getClassLoader().loadClass(own_name).newInstance()


def bytecodes(jvm: Any, source: str) -> Any:
    """Name → bytecode of the classes in a source, for a class loader that defines them itself."""
    return _compiler(jvm, source).getBytecodes()


def named_apart(name: str, source: str) -> tuple[str, str]:
    """A unique name for a class, and its source with that name.

    py4j caches methods by class name. Calls of a second class of the same name in one JVM, from
    another loader, would go to the methods of the first.
    """
    own_name = f"{name}{uuid.uuid4().hex}"
    return own_name, source.replace(name, own_name)


def _compiler(jvm: Any, source: str) -> Any:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(source)
    return compiler
