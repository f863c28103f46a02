import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from protocol.codec_loops import needs_compiled

SCRIPT = Path(__file__).parents[1] / "guarded_codec.py"


@needs_compiled
@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect()")
def test_the_compiled_reader_never_reads_past_the_end_of_its_input() -> None:
    """Tens of thousands of damaged messages, each right before an unreadable page. The process ends
    by touching that page, so it must die there, and not before.
    """
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT)],
        capture_output=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parent.parent)},
    )
    assert int(run.stdout) > 40_000, run.stderr.decode()
    assert run.returncode == -signal.SIGSEGV
