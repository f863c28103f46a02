"""The requests of these tests, each in one call over a `WireClient`. An error is part of the
response and is returned: a broker in trouble must still report errors.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from support.wire_client import WireClient

from moldau.net.clock import Clock
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record, iterate_batches

EARLIEST, LATEST = -2, -1
FETCH_BYTES = 4 << 20
# The last versions that identify topics by their names.
FETCH_VERSION, PRODUCE_VERSION, OFFSET_FETCH_VERSION, OFFSET_COMMIT_VERSION = 12, 12, 9, 9

Place = tuple[str, int]


class Fetched(NamedTuple):
    error_code: int
    high_watermark: int
    log_start_offset: int
    records: list[Record]
    next_offset: int


# Records


def produce(
    client: WireClient,
    topic: str,
    *values: bytes,
    partition: int = 0,
    timestamp_ms: int | None = None,
    acks: int = -1,
) -> tuple[int, int]:
    """Error code and base offset. Without a producer id; stamped with the current time."""
    time_ms = Clock().wall_ms() if timestamp_ms is None else timestamp_ms
    records = [Record(i, time_ms, None, value) for i, value in enumerate(values)]
    content = build_batch(records, BatchOptions(base_offset=0))
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=partition, records=content)]
    )
    request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])
    (answer,) = client.ask(request, PRODUCE_VERSION).responses[0].partition_responses
    return answer.error_code, answer.base_offset


def fetch(client: WireClient, place: Place, offset: int, max_wait_ms: int = 0) -> Fetched:
    topic, index = place
    wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    (answer,) = client.ask(request, FETCH_VERSION).responses[0].partitions
    records: list[Record] = []
    next_offset = offset
    for batch in iterate_batches(answer.records or b""):
        records += [record for record in batch.records() if record.offset >= offset]
        next_offset = batch.next_offset
    return Fetched(
        answer.error_code, answer.high_watermark, answer.log_start_offset, records, next_offset
    )


def read(client: WireClient, place: Place, start: int, end: int) -> list[Record]:
    """All records from `start` up to `end`."""
    records: list[Record] = []
    offset = start
    while offset < end:
        fetched = fetch(client, place, offset)
        assert fetched.error_code == 0, (place, offset, fetched.error_code)
        assert fetched.next_offset > offset, (place, offset, end, fetched.high_watermark)
        records += [record for record in fetched.records if record.offset < end]
        offset = fetched.next_offset
    return records


def read_all(client: WireClient, topic: str, partition: int = 0) -> list[bytes | None]:
    start = offset_at(client, (topic, partition), EARLIEST)
    end = offset_at(client, (topic, partition), LATEST)
    return [record.value for record in read(client, (topic, partition), start, end)]


def offset_at(client: WireClient, place: Place, timestamp_ms: int) -> int:
    (offset,) = offsets_at(client, [place], timestamp_ms).values()
    return offset


def offsets_at(client: WireClient, places: Iterable[Place], timestamp_ms: int) -> dict[Place, int]:
    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp_ms)],
        )
        for topic, index in places
    ]
    found = {}
    for topic in client.ask(ListOffsetsRequest(replica_id=-1, topics=topics)).topics:
        for partition in topic.partitions:
            assert partition.error_code == 0, (topic.name, partition)
            found[topic.name, partition.partition_index] = partition.offset
    return found


def delete_records_request(place: Place, before: int) -> DeleteRecordsRequest:
    topic, index = place
    wanted = DeleteRecordsPartition(partition_index=index, offset=before)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=30_000
    )


def delete_records(client: WireClient, place: Place, before: int) -> tuple[int, int]:
    """Error code and the new start."""
    (answer,) = client.ask(delete_records_request(place, before)).topics[0].partitions
    return answer.error_code, answer.low_watermark


# Groups


def find_coordinator(client: WireClient, group: str) -> int:
    """Returns the error code. The first request creates the topic of the groups."""
    (answer,) = client.ask(FindCoordinatorRequest(coordinator_keys=[group])).coordinators
    return int(answer.error_code)


def commit(client: WireClient, group: str, place: Place, offset: int) -> int:
    """Returns the error code. Commits without being a member of the group."""
    topic, index = place
    wanted = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[wanted])]
    )
    (answer,) = client.ask(request, OFFSET_COMMIT_VERSION).topics[0].partitions
    return int(answer.error_code)


def committed(client: WireClient, group: str) -> tuple[int, dict[Place, int]]:
    """Error code and all offsets of a group."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    (answer,) = client.ask(request, OFFSET_FETCH_VERSION).groups
    offsets = {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
    }
    return answer.error_code, offsets


# Topics and settings


def create_topics_request(
    topics: Mapping[str, int], configs: Mapping[str, str] | None = None
) -> CreateTopicsRequest:
    """`topics` are names and numbers of partitions."""
    settings = [CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()]
    wanted = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1, configs=settings)
        for name, count in topics.items()
    ]
    return CreateTopicsRequest(topics=wanted, timeout_ms=30_000)


def create_topics(
    client: WireClient, topics: Mapping[str, int], configs: Mapping[str, str] | None = None
) -> dict[str, tuple[int, str | None]]:
    """Error code and message for each."""
    answers = client.ask(create_topics_request(topics, configs)).topics
    return {each.name: (each.error_code, each.error_message) for each in answers}


def delete_topics_request(*names: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names], timeout_ms=30_000
    )


def delete_topics(client: WireClient, *names: str) -> dict[str, int]:
    answers = client.ask(delete_topics_request(*names)).responses
    return {each.name: each.error_code for each in answers}


def topics_of(client: WireClient) -> dict[str, int]:
    """All topics that clients created, and their numbers of partitions."""
    answer = client.ask(MetadataRequest(topics=None))
    return {t.name: len(t.partitions) for t in answer.topics if not t.is_internal}


def partition_errors(client: WireClient, topic: str) -> list[int]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    (answer,) = client.ask(request).topics
    return [partition.error_code for partition in answer.partitions]


def set_config_request(topic: str, name: str, value: str) -> IncrementalAlterConfigsRequest:
    resource = AlterConfigsResource(
        resource_type=ConfigResourceType.TOPIC,
        resource_name=topic,
        configs=[AlterableConfig(name=name, value=value)],
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


def set_config(client: WireClient, topic: str, name: str, value: str) -> int:
    (answer,) = client.ask(set_config_request(topic, name, value)).responses
    return int(answer.error_code)


def config_of(client: WireClient, topic: str, name: str) -> str | None:
    resource = DescribeConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name=topic, configuration_keys=[name]
    )
    (answer,) = client.ask(DescribeConfigsRequest(resources=[resource])).results
    assert answer.error_code == 0, answer
    (config,) = answer.configs
    value: Any = config.value
    return None if value is None else str(value)
