"""A process that is killed while it commits: no record that it reported as committed is lost."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from broker.kill_quorum import SETTINGS, next_number
from broker.metadata_node import formatted, running

TESTS = Path(__file__).parents[2]


def kill_after(path: Path, commits: int) -> tuple[int, int]:
    """Starts it, lets it commit `count` records, kills it. Returns its epoch, and the last reported
    commit.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "broker.kill_quorum", str(path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=TESTS,
    )
    try:
        assert process.stdout is not None
        epoch = int(process.stdout.readline().split()[1])
        for _ in range(commits):
            assert process.stdout.readline().strip().isdecimal()
    finally:
        process.kill()
    rest = process.stdout.read().splitlines()
    process.wait()
    process.stdout.close()
    # The last line may be cut off.
    said = [int(line) for line in rest[:-1]]
    return epoch, max(said, default=-1)


async def kill_and_check(path: Path, kills: int, seed: int) -> None:
    formatted(path)
    chance = Random(seed)
    last_epoch = 0
    for _ in range(kills):
        epoch, said = kill_after(path, chance.randrange(150))
        assert epoch > last_epoch
        last_epoch = epoch
        async with running(path, SETTINGS) as node:
            assert node.quorum.leader_epoch > last_epoch
            assert next_number(node.image.configs) > said
            last_epoch = node.quorum.leader_epoch


async def test_commits_of_a_killed_process_survive(tmp_path: Path) -> None:
    await kill_and_check(tmp_path, kills=3, seed=1)


@pytest.mark.slow
async def test_many_kills_lose_nothing(tmp_path: Path) -> None:
    await kill_and_check(tmp_path, kills=40, seed=2)
