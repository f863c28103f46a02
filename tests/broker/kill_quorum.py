"""A process that commits metadata until it is killed, and prints what is committed.

`python -m broker.kill_quorum DIRECTORY`: prints `epoch E` and then the number of each commit.
"""

import asyncio
import sys
from pathlib import Path

from broker.metadata_node import bootstrapped, config, running

SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "internal.metadata.log.segment.bytes": "6000",
    "metadata.max.retention.bytes": "20000",
    "internal.metadata.delete.delay.millis": "0",
}


async def commit_for_ever(path: Path) -> None:
    async with running(path, SETTINGS) as node:
        say(f"epoch {node.quorum.leader_epoch}")
        if node.image.metadata_version is None:
            await bootstrapped(node)
        number = next_number(node.image.configs)
        waiting: list[tuple[int, int]] = []
        while True:
            # Several in flight, as from a busy controller.
            while len(waiting) < 8:
                record = config("number", str(number))
                waiting.append((number, node.quorum.append([record], number)))
                number += 1
            committed, offset = waiting.pop(0)
            await node.quorum.wait_committed(offset)
            say(str(committed))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def next_number(configs: object) -> int:
    assert isinstance(configs, dict)
    values = [values["number"] for values in configs.values() if "number" in values]
    return int(values[0]) + 1 if values else 0


if __name__ == "__main__":
    asyncio.run(commit_for_ever(Path(sys.argv[1])))
