"""Faults planted into a copy of the package. The stories of one node find each of them, so they
would find such a mistake.
"""

import sys
from pathlib import Path

import pytest
from support.mutants import Mutant, finding

pytestmark = pytest.mark.slow

SEEDS = 300
# Prints the first seed whose story ends badly.
PROGRAM = f"""
from testing.simulation.one_node import story
for seed in range({SEEDS}):
    try:
        story(seed)
    except Exception as error:
        print(seed, type(error).__name__, str(error).splitlines()[0])
        break
"""


MUTANTS = [
    Mutant(
        "acks=all is answered before the flush",
        "storage/log/state",
        "            return self.log_end_offset\n        return self.flushed_offset\n",
        "            return self.log_end_offset\n        return self.log_end_offset\n",
    ),
    Mutant(
        "a failed flush counts",
        "storage/log/flushing",
        "        except OSError as error:\n            self.error = error\n",
        "        except OSError:\n            pass\n",
    ),
    Mutant(
        "topic ids are not synced",
        "storage/directory/unsynced_names",
        "            sync_path(filesystem, path / PARTITION_METADATA_FILE)\n",
        "            pass\n",
    ),
    Mutant(
        "names of logs are not synced after a kill",
        "storage/directory/logs",
        "            self._names.renamed()\n"
        "            for log in self._all():\n"
        "                self._names.created(log.path)\n",
        "",
    ),
    Mutant(
        "duplicates are appended",
        "storage/producers/append",
        "                duplicate = self._recall_duplicate(known, batch)\n"
        "            if duplicate is not None:\n",
        "                duplicate = self._recall_duplicate(known, batch)\n            if False:\n",
    ),
    Mutant(
        "read_committed reads beyond open transactions",
        "storage/log/state",
        "        stable = self.producers.last_stable_offset(self.high_watermark)\n",
        "        stable = self.high_watermark\n",
    ),
    Mutant(
        "only one partition gets its marker",
        "broker/coordinators/markers",
        "sorted(ending.missing))",
        "sorted(ending.missing)[:1])",
    ),
    Mutant(
        "coordinators answer before their record is committed",
        "broker/coordinators/shard_host",
        "        if written.last_offset < 0:\n            decided(None)",
        "        if True:\n            decided(None)",
    ),
    Mutant(
        "a torn tail is kept",
        "storage/log/recovery",
        "        segments[-1].cut(end.size)\n",
        "",
    ),
    Mutant(
        "metadata counts as committed before it is flushed",
        "core/quorum/leading",
        "min(\n            state.log.flushed_offset, state.log.end.offset\n        )",
        "state.log.end.offset",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_stories_find_it(mutant: Mutant, tmp_path: Path) -> None:
    found = finding(mutant, PROGRAM, tmp_path)
    assert found, f"{SEEDS} stories found nothing"
    sys.stdout.write(f"found at seed {found}\n")
