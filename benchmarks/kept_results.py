"""Where benchmarks keep their numbers, with what is needed to compare them later."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path

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
