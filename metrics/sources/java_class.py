"""Compilation of Java classes in a JVM with Janino, a Java compiler that Spark contains."""

from __future__ import annotations

import uuid
from importlib.resources import files
from typing import Any


def java_source(package: str | None, name: str) -> str:
    """The text of the file `NAME.java` of a package. The package may be in a wheel. The file must
    not use lambdas or type inference, because Janino does not support them.
    """
    return (files(package or "") / f"{name}.java").read_text(encoding="utf-8")


def compiled(jvm: Any, name: str, source: str) -> Any:
    """Compile a class under a unique name, and return a new object of the class.

    Args:
        jvm: py4j's view of the JVM.
        name: name of the class in the source.
        source: Java source without lambdas and type inference, which Janino does not support.
    """
    own_name, own_source = named_apart(name, source)
    return _compiler(jvm, own_source).getClassLoader().loadClass(own_name).newInstance()


def bytecodes(jvm: Any, source: str) -> Any:
    """Class name → bytecode, for the classes in a source. A class loader can define classes from
    this bytecode.
    """
    return _compiler(jvm, source).getBytecodes()


def named_apart(name: str, source: str) -> tuple[str, str]:
    """A unique name for a class, and the class's source with this name.

    py4j caches methods by class name. If two class loaders of one JVM had a class of the same name,
    calls to the second class would go to the methods of the first class.
    """
    own_name = f"{name}{uuid.uuid4().hex}"
    return own_name, source.replace(name, own_name)


def _compiler(jvm: Any, source: str) -> Any:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(source)
    return compiler
