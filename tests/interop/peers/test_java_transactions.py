"""Transactions by Apache's Java clients: the current one, which uses transaction version 2, and an
older one. Each step must have the same outcome as on Apache Kafka.
"""

import subprocess

import pytest
from interop.apache import (
    LOGGING,
    SMALL_JVM,
    ApacheUnavailableError,
    oracle_classes,
    require_tool,
)
from interop.missing import CACHE, give_up
from interop.peers.java_tools import JavaTools
from interop.peers.toolchains import older_java_clients

pytestmark = pytest.mark.interop

TIMEOUT_S = 300
PRESENT = "4.3.1"
OLDER = "3.7.2"
# The program's output against Apache Kafka 4.3.1, with the client of the same release.
ANSWERS = """\
begin without init: !IllegalStateException
commit before begin: !IllegalStateException
commit: done
settled: CompleteCommit
abort: done
settled: CompleteAbort
commit of nothing: done
abort of nothing: done
read by all: [aborted, aborted, committed 0, committed 1, committed 2, open]
read while open: [committed 0, committed 1, committed 2]
ends while open: 5 4
settled: CompleteCommit
read after: [committed 0, committed 1, committed 2, open]
one after the other: [quick kept, quick kept, quick kept, quick kept, quick kept, \
quick kept, quick kept, quick kept, quick kept, quick kept]
too large: !RecordTooLargeException
abort after an error: done
commit after an error: done
partitions of kept: 40
settled: CompleteCommit
partitions of lost: 40
settled: CompleteAbort
partitions of kept too: 40
settled: CompleteCommit
read of many: [kept, kept too] 160
offsets in sight before: []
settled: CompleteAbort
offsets in sight after: []
transformed: []
offsets in sight before: []
settled: CompleteCommit
offsets in sight after: [0=5 kept, 1=5 kept]
transformed: [r0', r1', r2', r3', r4', r5', r6', r7', r8', r9']
offsets of stranger: !CommitFailedException
commit by stranger: !KafkaException by CommitFailedException
end by stranger: aborted
offsets of old generation: !CommitFailedException
commit by old generation: !KafkaException by CommitFailedException
end by old generation: aborted
offsets of nobody: done
commit by nobody: done
end by nobody: !IllegalStateException
offsets of member: done
commit by member: done
end by member: !IllegalStateException
taken over: done
what was open: Empty
zombie writes: !InvalidProducerEpochException
zombie commits: !InvalidProducerEpochException
zombie aborts: !ProducerFencedException
zombie begins: !ProducerFencedException
heir commits: done
read: [of the heir]
idle zombie writes: !InvalidProducerEpochException
idle zombie commits: !InvalidProducerEpochException
read again: [of the heir]
too long a timeout: !KafkaException
after its time: CompleteAbort
read: []
commit after its time: !InvalidTxnStateException
after its time: CompleteAbort
write after its time: !InvalidProducerEpochException
abort after its time: done
read: []
unknown id: !TransactionalIdNotFoundException
idle: Empty 50000 OptionalLong.empty [] 1
open: Ongoing true true true
listed: [Ongoing true]
producer: true true 1 OptionalInt.empty OptionalLong[0]
abort of one partition: null
fenced: Empty
commit of the fenced: !ProducerFencedException
read: []
"""
# Differences of the older client.
OF_OLDER = {
    "idle zombie writes": "!ProducerFencedException",
    "idle zombie commits": "!ProducerFencedException",
    "commit after its time": "!ProducerFencedException",
    "abort after its time": "!ProducerFencedException",
}


def _of_older(line: str) -> str:
    step, colon, end = line.partition(": ")
    return step + colon + OF_OLDER.get(step, end)


def class_path(tools: JavaTools, client: str) -> str:
    """The program's classes, and one release's client."""
    classes = oracle_classes(CACHE, tools.apache.jar_folder)
    if client == PRESENT:
        return f"{classes}:{tools.apache.jar_folder}/*"
    try:
        return f"{classes}:{older_java_clients(CACHE)}/*"
    except ApacheUnavailableError as reason:
        give_up(reason)


@pytest.mark.parametrize("client", [PRESENT, OLDER])
def test_every_step_of_a_transaction_has_the_same_outcome_as_with_apache(
    tools: JavaTools, name: str, client: str
) -> None:
    command = [require_tool("java"), *SMALL_JVM, f"-Dlog4j2.configurationFile={LOGGING}"]
    command += ["-cp", class_path(tools, client), "TransactionCalls", tools.server.address, name]
    run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    said = run.stdout.replace(name, "NAME").splitlines()
    expected = ANSWERS.splitlines()
    if client == OLDER:
        expected = [_of_older(line) for line in expected]
    assert (run.returncode, said) == (0, expected), run.stderr[-3000:]
