"""Clients for benchmarks of a node, in a process of their own: raw sockets, where the client must
cost next to nothing, and confluent-kafka.
"""

import contextlib
import resource
import selectors
import socket
import struct
from collections.abc import Iterator, Mapping
from time import perf_counter
from types import MappingProxyType
from typing import Self, TypeVar

from confluent_kafka import Consumer, Producer
from node_peers import API_VERSIONS_V0, HOST

from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.protocol.records.batch_builder import build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.wire.frame import build_request, read_response
from moldau.protocol.wire.schema import Message

TIMEOUT_S = 60
TIMEOUT_MS = TIMEOUT_S * 1000
CREATE_TOPICS_VERSION = 5
FETCH_VERSION = 12
METADATA_VERSION = 9
PRODUCE_VERSION = 9
TOPIC_ALREADY_EXISTS = 36
SPARE_DESCRIPTORS = 500

ResponseT = TypeVar("ResponseT", bound=Message)


class RawConnection:
    """A blocking connection that sends one request at a time."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, request: Message, version: int, response_class: type[ResponseT]) -> ResponseT:
        self.socket.sendall(request_frame(request, version))
        (size,) = struct.unpack(">i", self.receive(4))
        _, response = read_response(self.receive(size), response_class, version)
        assert isinstance(response, response_class)
        return response

    def receive(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            piece = self.socket.recv(size - len(got))
            if not piece:
                raise SystemExit("the node closed the connection")
            got += piece
        return bytes(got)


def request_frame(request: Message, version: int) -> bytes:
    return b"".join(build_request(request, version, correlation_id=1, client_id="bench"))


def produce_request(topic: str, value_bytes: int) -> ProduceRequest:
    """One record."""
    records = build_batch([Record(offset=0, timestamp=0, key=None, value=bytes(value_bytes))])
    partition = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=-1,
        timeout_ms=TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=[partition])],
    )


# Topics


def create_topics(
    port: int,
    names: list[str],
    *,
    per_request: int = 50,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Creates topics with one partition each. Returns when all of them have a leader."""
    with RawConnection(port) as connection:
        for first in range(0, len(names), per_request):
            some = names[first : first + per_request]
            configs = [CreatableTopicConfig(name=n, value=value) for n, value in settings.items()]
            topics = [
                CreatableTopic(name=each, num_partitions=1, replication_factor=1, configs=configs)
                for each in some
            ]
            request = CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
            answer = connection.ask(request, CREATE_TOPICS_VERSION, CreateTopicsResponse)
            for topic in answer.topics:
                if topic.error_code not in {0, TOPIC_ALREADY_EXISTS}:
                    raise SystemExit(f"{topic.name}: {topic.error_code} {topic.error_message}")
        _wait_for_leaders(connection, names)


def _wait_for_leaders(connection: RawConnection, names: list[str]) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=each) for each in names], allow_auto_topic_creation=False
    )
    give_up = perf_counter() + TIMEOUT_S
    while perf_counter() < give_up:
        answer = connection.ask(request, METADATA_VERSION, MetadataResponse)
        errors = [topic.error_code for topic in answer.topics]
        errors += [each.error_code for topic in answer.topics for each in topic.partitions]
        if not any(errors):
            return
    raise SystemExit(f"after {TIMEOUT_S} s some topics have no leader")


def produce_first_record(port: int, topic: str) -> None:
    """Creates a topic and gets a record acknowledged, as soon as the node does both."""
    create_topics(port, [topic])
    give_up = perf_counter() + TIMEOUT_S
    with RawConnection(port) as connection:
        while perf_counter() < give_up:
            request = produce_request(topic, 100)
            answer = connection.ask(request, PRODUCE_VERSION, ProduceResponse)
            if not answer.responses[0].partition_responses[0].error_code:
                return
    raise SystemExit(f"after {TIMEOUT_S} s no record is taken")


# Small requests


def small_requests(port: int) -> dict[str, bytes]:
    """Frames by description. The topic that they use exists and has a record."""
    topic = "small"
    produce_first_record(port, topic)
    fetch = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
    requests: dict[str, tuple[Message, int]] = {
        "Metadata of 1 topic": (
            MetadataRequest(topics=[MetadataRequestTopic(name=topic)]),
            METADATA_VERSION,
        ),
        "Produce of 1 record": (produce_request(topic, 100), PRODUCE_VERSION),
        "Fetch of 1 record": (
            FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=1 << 20,
                topics=[FetchTopic(topic=topic, partitions=[fetch])],
            ),
            FETCH_VERSION,
        ),
    }
    return {name: request_frame(*request) for name, request in requests.items()}


def request_rate(
    port: int, frame: bytes, *, connections: int, in_flight: int, seconds: float
) -> float:
    """The number of responses per second. Every response must have the same size: then counting
    bytes counts responses.
    """
    answered_bytes = 0
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        sockets = [stack.enter_context(RawConnection(port)).socket for _ in range(connections)]
        answer_bytes = _answer_size(sockets[0], frame)
        missing = dict.fromkeys(sockets, 0)
        began = perf_counter()
        for each in sockets:
            selector.register(each, selectors.EVENT_READ)
            each.sendall(frame * in_flight)
        while perf_counter() - began < seconds:
            for key, _ in selector.select(TIMEOUT_S):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                count = len(connection.recv(1 << 16))
                if not count:
                    raise SystemExit("the node closed the connection")
                answered_bytes += count
                whole, missing[connection] = divmod(missing[connection] + count, answer_bytes)
                if whole:
                    connection.sendall(frame * whole)
        took = perf_counter() - began
    return answered_bytes / answer_bytes / took


def _answer_size(connection: socket.socket, frame: bytes) -> int:
    connection.sendall(frame)
    size: int = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
    connection.recv(size, socket.MSG_WAITALL)
    return 4 + size


@contextlib.contextmanager
def idle_connections(port: int, count: int) -> Iterator[None]:
    """Each connection has had one response."""
    _raise_descriptor_limit(count + SPARE_DESCRIPTORS)
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(RawConnection(port))
            _answer_size(connection.socket, API_VERSIONS_V0)
        yield


def _raise_descriptor_limit(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise SystemExit(f"{wanted} descriptors are needed, the limit is {hard}: ulimit -n")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# confluent-kafka


def confluent_produce(bootstrap: str, topic: str, count: int, value_bytes: int) -> float:
    """Records per second, until all are acknowledged."""
    failed: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 65536,
            "queue.buffering.max.messages": count + 1,
            "queue.buffering.max.kbytes": 1 << 20,
            "on_delivery": delivered,
        }
    )
    value = bytes(value_bytes)
    began = perf_counter()
    for number in range(count):
        producer.produce(topic, value)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(TIMEOUT_S)
    took = perf_counter() - began
    if left or failed:
        raise SystemExit(f"{left} records were not acknowledged, {len(failed)} failed")
    return count / took


def confluent_consume(bootstrap: str, topic: str, count: int) -> float:
    """Records per second, from the first one that arrives to the last."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # It pauses for a second when its queue is full, which only a fast node causes.
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.subscribe([topic])
    got = first = 0
    began = give_up = perf_counter() + TIMEOUT_S
    while got < count and perf_counter() < give_up:
        some = consumer.consume(10_000, 1.0)
        if some and not got:
            began, first = perf_counter(), len(some)
        got += sum(each.error() is None for each in some)
    took = perf_counter() - began
    consumer.close()
    if got < count:
        raise SystemExit(f"only {got} of {count} records came")
    return (got - first) / took
