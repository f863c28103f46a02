"""Log lines about topics that could not be created."""

from pathlib import Path

import pytest
from broker.controller_bench import bench

from moldau.protocol.error_codes import ErrorCode

FACTORS = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
    "__share_group_state": "share.coordinator.state.topic.replication.factor",
}
# The default of properties files.
DEFAULT_FACTOR = "3"


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if line.startswith("topics could not be created")]


@pytest.mark.parametrize("topic", FACTORS)
async def test_an_internal_topic_without_its_replicas_names_the_setting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    async with bench(tmp_path / "data", {FACTORS[topic]: DEFAULT_FACTOR}) as node:
        for _ in range(2):
            outcomes = await node.topic_creation.ensure([topic])
            assert outcomes == {topic: ErrorCode.INVALID_REPLICATION_FACTOR}
    (line,) = lines_of(caplog)
    assert line.startswith(f"topics could not be created: {topic}: INVALID_REPLICATION_FACTOR: ")
    assert "only 1 broker(s) are registered" in line
    assert line.endswith(f" A cluster of one node needs {FACTORS[topic]}=1.")


async def test_topics_with_one_reason_share_a_line_with_the_whole_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = ["n" * 249, *(f"topic-{number}" for number in range(9))]
    async with bench(tmp_path / "data", {"default.replication.factor": "2"}) as node:
        await node.topic_creation.ensure(names)
    (line,) = lines_of(caplog)
    assert f"{'n' * 100}…, topic-0, topic-1, topic-2, topic-3 and 5 more: " in line
    assert line.endswith("some brokers have all their log directories cordoned.")


async def test_topics_that_fail_for_reasons_of_their_own_share_a_line_with_the_first_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(tmp_path / "data") as node:
        await node.topic_creation.ensure([f"a.{number}" for number in range(20)])
        await node.topic_creation.ensure([f"a_{number}" for number in range(20)])
    (line,) = lines_of(caplog)
    assert "a_0, a_1, a_2, a_3, a_4 and 15 more: INVALID_TOPIC_EXCEPTION: " in line
    assert line.endswith("Topic 'a_0' collides with existing topic: a.0")
