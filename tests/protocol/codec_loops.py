"""Both implementations of the codec, for tests that hold for each. Without a C compiler there is
only the twin, and the tests that compare the two are skipped.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

TWIN: Any = import_module("moldau.protocol.wire._codec_twin")
COMPILED: Any = TWIN
LOOPS = {"python": TWIN}
if find_spec("moldau.protocol.wire._codec"):
    COMPILED = import_module("moldau.protocol.wire._codec")
    LOOPS["compiled"] = COMPILED

needs_compiled = pytest.mark.skipif(COMPILED is TWIN, reason="installed without compiled loops")
