"""Changes of a directory in its thread, and what becomes of their failures."""

from pathlib import Path

import pytest
from storage.log_maker import open_directory

from moldau.broker.replicas.disk_threads import DiskThreads
from moldau.storage.compaction.run import CompactionAbortedError
from moldau.storage.disk.disk_steps import Steps
from moldau.testing.simulated_disk import SimulatedDisk


def _is_ended_by_a_stop() -> Steps[None]:
    yield lambda: None
    raise CompactionAbortedError("the log changed")


async def test_an_end_that_the_caller_foresees_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    directory = open_directory(Path("/logs"), SimulatedDisk())
    threads = DiskThreads([directory])
    with pytest.raises(CompactionAbortedError):
        await threads.run(directory, _is_ended_by_a_stop())
    await threads.stop()
    directory.close()
    assert not caplog.records
