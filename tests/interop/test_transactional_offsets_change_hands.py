"""One log directory, coordinated in turns by Moldau and by Apache Kafka, with open, committed and
aborted transactions: pending offsets stay pending, and decided ones stay decided.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from interop.apache import ApacheOracle
from interop.group_talk import go_on
from interop.live_broker import LiveBroker, LiveMoldau, LiveNode
from interop.offset_talk import HANDOVER, SETTINGS, OffsetTalk, wait_for_coordinators

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("ends", [LiveNode.stop, LiveNode.kill], ids=["stopped", "killed"])
@pytest.mark.parametrize("first", ["apache", "moldau"])
def test_transactions_continue_on_the_other_node(
    first: str, ends: Callable[[LiveNode], object], apache: ApacheOracle, tmp_path: Path
) -> None:
    theirs, ours = LiveBroker(apache, tmp_path, SETTINGS), LiveMoldau(tmp_path, SETTINGS)
    theirs.address, theirs.controller_address = ours.address, ours.controller_address
    before, after = (theirs, ours) if first == "apache" else (ours, theirs)
    with before, after:
        before.format()
        before.start()
        before.create_topic("t", partitions=4)
        wait_for_coordinators(before.address)
        talk = OffsetTalk(before.address)
        try:
            expected, heard = go_on(talk, HANDOVER / "before.txt")
            assert heard == expected
            ends(before)
            talk.wire.close()
            after.start()
            wait_for_coordinators(after.address)
            expected, heard = go_on(talk, HANDOVER / "after.txt")
            assert heard == expected
        finally:
            talk.wire.close()
