"""Both implementations of the codec, for tests that hold for each."""

from importlib import import_module
from typing import Any

COMPILED: Any = import_module("moldau.protocol._codec")
TWIN: Any = import_module("moldau.protocol._codec_twin")
LOOPS = {"compiled": COMPILED, "python": TWIN}
