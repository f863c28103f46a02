import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from protocol.batch_strategies import compiled

SCRIPT = Path(__file__).parents[1] / "guarded_records.py"


@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect()")
def test_the_compiled_loops_never_read_past_the_end_of_hostile_bytes() -> None:
    """5,000 damaged bodies and 5,000 damaged batches, each right before an unreadable page. The
    process ends by touching that page, so it must die there, and not before.
    """
    assert compiled is not None
    tests = str(SCRIPT.parent.parent)
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), "5000"],
        capture_output=True, timeout=120, check=False, env={**os.environ, "PYTHONPATH": tests},
    )  # fmt: skip
    assert run.stdout == b"10000\n", run.stderr.decode()
    assert run.returncode == -signal.SIGSEGV
