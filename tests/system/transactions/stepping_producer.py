"""A producer in its own process that proceeds to a step of a transaction, reports it and waits to
be killed. `python -m system.transactions.stepping_producer ADDRESS ID STYLE STEP`
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

from system.node.questions import Place
from system.transactions.wire_producer import Style, WireProducer

TOPIC, GROUP = "stepped", "stepping"
PLACES: list[Place] = [(TOPIC, index) for index in range(2)]
OFFSET = 7
DONE = "done"
_TESTS = Path(__file__).parents[2]


class Step(IntEnum):
    BEGUN = 0
    """It has its producer id."""
    WRITTEN = 1
    WRITTEN_EVERYWHERE = 2
    OFFSETS_SENT = 3
    END_SENT = 4
    ENDED = 5


def go_to(step: Step, producer: WireProducer, value: bytes) -> None:
    """In the order of a transaction."""
    if step >= Step.WRITTEN:
        producer.send(PLACES[0], value)
    if step >= Step.WRITTEN_EVERYWHERE:
        producer.send(PLACES[1], value)
    if step >= Step.OFFSETS_SENT:
        producer.send_offsets(GROUP, {PLACES[0]: OFFSET})
    if step is Step.END_SENT:
        producer.begin_end(commits=True)
    if step is Step.ENDED:
        producer.end(commits=True)


@contextmanager
def stopped_at(
    step: Step, address: str, transactional_id: str, style: Style
) -> Iterator[subprocess.Popen[str]]:
    """It has reached this step."""
    names = [address, transactional_id, style.name, step.name]
    process = subprocess.Popen(
        [sys.executable, "-m", "system.transactions.stepping_producer", *names],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_TESTS,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == DONE
        yield process
    finally:
        process.kill()
        process.communicate()


def main() -> None:
    address, transactional_id, style, step = sys.argv[1:]
    with WireProducer(address, transactional_id, Style[style]) as producer:
        go_to(Step[step], producer.init(), transactional_id.encode())
        sys.stdout.write(DONE + "\n")
        sys.stdout.flush()
        # Until it is killed, or the test is gone.
        sys.stdin.read()


if __name__ == "__main__":
    main()
