"""The project's own Java classes as jars for the class path of another JVM, such as a broker's.

Janino, the compiler in Spark's package, compiles the classes in a JVM of its own in less than a
second, so a JRE is sufficient. The cache keeps the jars.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

from jobs.setup.child_environment import child_environment
from jobs.setup.ivy import spark_jar
from jobs.setup.jar_cache import JarCache
from jobs.setup.places import cache_dir
from jobs.setup.preflight import java_command
from metrics.common.errors import ConfigError

TIMEOUT_S = 60.0
_COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"
_PARTS = ("janino", "commons-compiler")


def java_jar(name: str, source: str, class_path: Sequence[Path]) -> Path:
    """The path of a jar with one public class; compiled unless the cache has it.

    Args:
        name: name of the public class.
        source: Java without lambdas and type inference, which Janino does not support.
        class_path: jars that the source needs.

    Raises:
        ConfigError: Java or Janino is missing, or the source does not fit the jars.
    """
    compiler = [spark_jar(part) for part in _PARTS]
    seen = [source, *(jar.name for jar in [*compiler, *class_path])]
    recipe = hashlib.sha256("\n".join(seen).encode()).hexdigest()
    # The digest is part of the name, so that a JVM does not confuse two versions of a jar.
    folder = f"{name}-{recipe[:12]}"

    def compile_it(target: Path, work: Path) -> None:
        work.mkdir()
        path = work / f"{name}.java"
        path.write_text(source, encoding="utf-8")
        classes = work / "classes"
        _compile(path, classes, compiler, class_path)
        _pack(classes, target / f"{name}.jar")

    return JarCache(cache_dir() / "jars").jars(folder, recipe, compile_it)[0]


def _compile(
    path: Path, classes: Path, compiler: Sequence[Path], class_path: Sequence[Path]
) -> None:
    classes.mkdir()
    command = [
        *(java_command(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"),
        *("-cp", _joined(compiler), _COMPILER),
        *("-encoding", "UTF-8", "-d", str(classes), "-classpath", _joined(class_path), str(path)),
    ]
    try:
        done = subprocess.run(
            command,
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"the compilation of {path.name} took more than {TIMEOUT_S:.0f} s; stop other programs "
            "on this machine, then try again"
        ) from error
    if done.returncode != 0 or not any(classes.rglob("*.class")):
        output = done.stdout.decode(errors="replace").strip()
        raise ConfigError(
            f"{path.name} cannot be compiled with the jars {_names(class_path)}: {output[-600:]}"
        )


def _pack(classes: Path, jar: Path) -> None:
    with zipfile.ZipFile(jar, "w") as archive:
        for path in sorted(classes.rglob("*.class")):
            # With a constant time stamp, the same classes make the same jar.
            entry = zipfile.ZipInfo(path.relative_to(classes).as_posix())
            archive.writestr(entry, path.read_bytes())


def _joined(jars: Sequence[Path]) -> str:
    return os.pathsep.join(map(str, jars))


def _names(jars: Sequence[Path]) -> str:
    return ", ".join(jar.name for jar in jars)
