"""One log directory, coordinated in turns by Moldau and by Apache Kafka, with transactions that are
open, committed and aborted: what is pending stays pending, and what is decided stays decided.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from interop.apache import ApacheOracle
from interop.live_broker import LiveBroker, LiveMoldau, LiveNode
from interop.offset_talk import SETTINGS, OffsetTalk, wait_for_coordinators

pytestmark = pytest.mark.interop

BEFORE = """
a commits t-0=1 t-1=1 t-2=1 t-3=1
p begins
a commits txn=p t-0=5 v=5
p ends commit v=5
q begins
a commits txn=q t-1=6 v=5
q ends abort v=5
a awaits t-0 t-1
r begins
r adds group v=4
a commits txn=r t-2=7
r writes t-0
s begins
a commits txn=s t-3=8 v=5
s writes t-1
a fetches t-0 t-1 t-2 t-3
a fetches t-0 t-1 t-2 t-3 stable
"""
SAID_BEFORE = """
a committed: NONE NONE NONE NONE
p begins: NONE epoch=0
a commits: t-0=NONE
p ends: NONE epoch=1
q begins: NONE epoch=0
a commits: t-1=NONE
q ends: NONE epoch=1
a awaits: t-0=5 t-1=1
r begins: NONE epoch=0
r adds: NONE
a commits: t-2=NONE
r writes: NONE
s begins: NONE epoch=0
a commits: t-3=NONE
s writes: NONE
a fetches: t-0=5 t-1=1 t-2=1 t-3=1
a fetches: t-0=5 t-1=1 t-2=UNSTABLE_OFFSET_COMMIT t-3=UNSTABLE_OFFSET_COMMIT
"""
AFTER = """
a fetches t-0 t-1 t-2 t-3
a fetches t-0 t-1 t-2 t-3 stable
a commits txn=r t-2=9
r writes t-0
r ends commit
s ends abort v=5
a awaits t-0 t-1 t-2 t-3
a commits txn=p t-0=10 v=5
p ends commit v=5
a awaits t-0 t-1 t-2 t-3
"""
SAID_AFTER = """
a fetches: t-0=5 t-1=1 t-2=1 t-3=1
a fetches: t-0=5 t-1=1 t-2=UNSTABLE_OFFSET_COMMIT t-3=UNSTABLE_OFFSET_COMMIT
a commits: t-2=NONE
r writes: NONE
r ends: NONE
s ends: NONE epoch=1
a awaits: t-0=5 t-1=1 t-2=9 t-3=1
a commits: t-0=NONE
p ends: NONE epoch=2
a awaits: t-0=10 t-1=1 t-2=9 t-3=1
"""


def says(talk: OffsetTalk, lines: str) -> str:
    talk.lines = []
    for line in lines.split("\n"):
        if line:
            talk.run(line)
    return "\n".join(["", *talk.lines, ""])


@pytest.mark.parametrize("ends", [LiveNode.stop, LiveNode.kill], ids=["stopped", "killed"])
@pytest.mark.parametrize("first", ["apache", "moldau"])
def test_transactions_go_on_elsewhere(
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
            assert says(talk, BEFORE) == SAID_BEFORE
            ends(before)
            talk.wire.close()
            after.start()
            wait_for_coordinators(after.address)
            assert says(talk, AFTER) == SAID_AFTER
        finally:
            talk.wire.close()
