"""Decides whether the compiled loops are used. Every compiled loop has a Python twin with the same
results; `MOLDAU_PURE_PYTHON=1` selects the twins, as does an install without a C compiler.
"""

import importlib.util
import os
import warnings


class CompiledLoopsMissingWarning(UserWarning):
    """The package runs on its Python twins: correct, but many times slower."""


def _choose() -> bool:
    if os.environ.get("MOLDAU_PURE_PYTHON") == "1":
        return False
    loops = (
        "moldau.protocol.wire._codec",
        "moldau.protocol.records._records",
        "moldau.storage.compaction._compaction",
        "moldau.storage.disk._file_views",
        "moldau.core.producer._batching",
        "moldau.core.coordinator._placement",
    )
    if all(importlib.util.find_spec(name) for name in loops):
        return True
    warnings.warn(
        "moldau was installed without its compiled loops (no C compiler was found) and runs on "
        "their Python twins, which are slower; install a C compiler and reinstall moldau, or set "
        "MOLDAU_PURE_PYTHON=1 to silence this",
        CompiledLoopsMissingWarning,
        stacklevel=2,
    )
    return False


USE_COMPILED: bool = _choose()
