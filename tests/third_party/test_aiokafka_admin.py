"""Every admin call of aiokafka. Each is one coroutine in a client of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidReplicationFactorError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
)
from support.running_node import fresh_name
from support.waiting import wait_for
from third_party.aiokafka_library import AiokafkaLibrary
from third_party.libraries import Committed, ConsumerOptions, ProducerOptions, Sent
from third_party.members import members

from moldau import types

LIBRARY = AiokafkaLibrary()
TIMEOUT_S = 30.0
Ask = Callable[[Callable[[Any], Awaitable[Any]]], Any]


@pytest.fixture
def ask(address: str) -> Ask:
    """Runs a coroutine with an admin client."""

    async def run(work: Callable[[Any], Awaitable[Any]]) -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await work(admin)
        finally:
            await admin.close()

    return lambda work: asyncio.run(run(work))


def only_error(answer: Any) -> int:
    """The error code of the only item of a raw response."""
    (item,) = answer.topic_errors if hasattr(answer, "topic_errors") else answer.topic_error_codes
    return int(item[1])


def test_a_topic_is_created_listed_described_grown_and_deleted(ask: Ask) -> None:
    name = fresh_name("made")
    new = NewTopic(name, 2, 1, topic_configs={"cleanup.policy": "compact"})
    assert only_error(ask(lambda admin: admin.create_topics([new]))) == 0
    with pytest.raises(TopicAlreadyExistsError):
        raise_error(ask(lambda admin: admin.create_topics([new])))
    assert name in ask(lambda admin: admin.list_topics())
    (described,) = ask(lambda admin: admin.describe_topics([name]))
    assert (described["topic"], described["error_code"]) == (name, 0)
    assert [each["partition"] for each in described["partitions"]] == [0, 1]

    grown = ask(lambda admin: admin.create_partitions({name: NewPartitions(4)}))
    assert only_error(grown) == 0
    wait_for(
        lambda: len(ask(lambda admin: admin.describe_topics([name]))[0]["partitions"]) == 4,
        "the new partitions",
    )
    assert only_error(ask(lambda admin: admin.delete_topics([name]))) == 0
    wait_for(lambda: name not in ask(lambda admin: admin.list_topics()), "the deletion")


def raise_error(answer: Any) -> None:
    from aiokafka.errors import for_code

    code = only_error(answer)
    if code:
        raise for_code(code)


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (NewTopic("a b", 1, 1), InvalidTopicError),
        (NewTopic("too-many", 1, 5), InvalidReplicationFactorError),
    ],
    ids=["name", "copies"],
)
def test_an_impossible_topic_is_refused(ask: Ask, new: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        raise_error(ask(lambda admin: admin.create_topics([new])))


def test_a_creation_may_only_be_validated(ask: Ask) -> None:
    name = fresh_name("imagined")
    answer = ask(lambda admin: admin.create_topics([NewTopic(name, 1, 1)], validate_only=True))
    assert only_error(answer) == 0
    assert name not in ask(lambda admin: admin.list_topics())


def test_the_cluster_describes_itself(ask: Ask, address: str) -> None:
    described = ask(lambda admin: admin.describe_cluster())
    (broker,) = described["brokers"]
    assert f"{broker['host']}:{broker['port']}" == address
    assert described["controller_id"] == broker["node_id"]


def described_configs(ask: Ask, kind: Any, name: str) -> dict[str, str | None]:
    (answer,) = ask(lambda admin: admin.describe_configs([ConfigResource(kind, name)]))
    ((code, _, _, _, entries),) = answer.resources
    assert code == 0
    return {each[0]: each[1] for each in entries}


def test_settings_are_described_and_replaced(ask: Ask, topic: str) -> None:
    kind = ConfigResourceType.TOPIC
    assert described_configs(ask, kind, topic)["retention.ms"] == "-1"
    change = ConfigResource(kind, topic, configs={"segment.bytes": "2000000"})
    ask(lambda admin: admin.alter_configs([change]))
    wait_for(
        lambda: described_configs(ask, kind, topic)["segment.bytes"] == "2000000", "the change"
    )
    assert described_configs(ask, kind, topic)["retention.ms"] == "604800000"


def test_broker_settings_are_described(ask: Ask) -> None:
    (broker,) = ask(lambda admin: admin.describe_cluster())["brokers"]
    configs = described_configs(ask, ConfigResourceType.BROKER, str(broker["node_id"]))
    assert configs["node.id"] == str(broker["node_id"])
    assert configs["group.initial.rebalance.delay.ms"] == "0"


def test_groups_are_listed_and_described_with_their_offsets(
    ask: Ask, address: str, topic: str
) -> None:
    group = fresh_name("group")
    partition = types.TopicPartition(topic, 0)
    with members((LIBRARY, address, [topic], ConsumerOptions(group=group))) as (member,):
        member.ask(lambda consumer: consumer.commit({partition: Committed(0, "a note")}))
        assert (group, "consumer") in ask(lambda admin: admin.list_consumer_groups())
        (answer,) = ask(lambda admin: admin.describe_consumer_groups([group]))
        ((code, name, state, kind, protocol, found, *_),) = answer.groups
        assert (code, name, state, kind, protocol) == (0, group, "Stable", "consumer", "range")
        assert len(found) == 1
        coordinator = ask(lambda admin: admin.find_coordinator(group))
        (broker,) = ask(lambda admin: admin.describe_cluster())["brokers"]
        assert coordinator == broker["node_id"]
    everything = ask(lambda admin: admin.list_consumer_group_offsets(group))
    named = ask(
        lambda admin: admin.list_consumer_group_offsets(
            group, partitions=[TopicPartition(topic, 0)]
        )
    )
    assert everything == named
    assert tuple(everything[TopicPartition(topic, 0)]) == (0, "a note")


def test_records_are_deleted_up_to_an_offset(ask: Ask, address: str, topic: str) -> None:
    records = [Sent(value=b"%d" % number) for number in range(10)]
    LIBRARY.produce(address, topic, records, ProducerOptions())
    partition = TopicPartition(topic, 0)
    deleted = ask(lambda admin: admin.delete_records({partition: RecordsToDelete(6)}))
    assert deleted == {partition: 6}
    with pytest.raises(OffsetOutOfRangeError):
        ask(lambda admin: admin.delete_records({partition: RecordsToDelete(11)}))
