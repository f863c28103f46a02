"""Stores the numbers of benchmarks, with the facts needed to compare them later."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moldau.compiled import USE_COMPILED

FOLDER = Path(__file__).parent / "results"


def keep(name: str, **content: object) -> None:
    report = {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "compiled": USE_COMPILED,
        **content,
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def kept(name: str) -> dict[str, Any]:
    """The stored numbers of an earlier run; empty if there are none."""
    path = FOLDER / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return found
