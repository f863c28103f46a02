"""A blocking connection that speaks Kafka's frames, for tests that specify exactly what is sent.

It encodes and decodes with Moldau's own codec; bytes that no codec would produce go through
`send_raw`.
"""

import itertools
import select
import socket
import struct
from types import TracebackType
from typing import Any, Protocol, Self

from support.waiting import wait_for

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages import response_class
from moldau.protocol.wire.frame import build_request, read_response
from moldau.protocol.wire.schema import Message

ANSWER_TIMEOUT_S = 30.0


class HungUpError(ConnectionError):
    """The peer closed the connection."""


class Asks(Protocol):
    """An object that sends a request and returns its response."""

    def ask(self, request: Message, version: int | None = None) -> Any: ...


def parse_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


class WireClient:
    """One connection; requests are answered in order."""

    def __init__(self, address: str, client_id: str | None = "wire-client") -> None:
        self._socket = socket.create_connection(parse_address(address), ANSWER_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._numbers = itertools.count(1)
        self.client_id = client_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, request: Message, version: int | None = None) -> int:
        """Send a request without waiting, by default in its newest version. Returns its correlation
        id.
        """
        number = next(self._numbers)
        if version is None:
            version = request.VERSIONS[1]
        frame = build_request(request, version, correlation_id=number, client_id=self.client_id)
        self.send_raw(b"".join(frame))
        return number

    def ask(self, request: Message, version: int | None = None) -> Any:
        """Send a request and read its response."""
        if version is None:
            version = request.VERSIONS[1]
        number = self.send(request, version)
        answered, response = self.receive(ApiKey(request.API_KEY), version)
        assert answered == number
        return response

    def receive(self, api_key: ApiKey, version: int) -> tuple[int, Any]:
        """Correlation id and message of the next response."""
        return read_response(self.receive_frame(), response_class(api_key), version)

    def send_raw(self, content: bytes) -> None:
        try:
            self._socket.sendall(content)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise HungUpError from error

    def finish_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def has_answer(self, timeout_s: float = 0) -> bool:
        """Whether bytes have arrived that were not received yet."""
        # select() accepts no descriptor beyond 1,023, and a node in this process may have many.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def hangs_up(self) -> bool:
        """Whether the peer closes the connection without a byte of response; waits for one or the
        other.
        """
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _receive_exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            try:
                chunk = self._socket.recv(min(size - len(received), 1 << 20))
            except ConnectionResetError as error:
                raise HungUpError from error
            if not chunk:
                raise HungUpError
            received += chunk
        return bytes(received)


def create_topic(
    address: str, name: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> bytes:
    """Create a topic, wait until each partition has a leader, and return the topic's id. By default
    records are kept regardless of their age.
    """
    from moldau.protocol.messages.create_topics import (
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
    )

    wanted_configs = {"retention.ms": "-1"} | (configs or {})
    settings = [CreatableTopicConfig(name=k, value=v) for k, v in wanted_configs.items()]
    wanted = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=settings
    )
    with WireClient(address) as client:
        (created,) = client.ask(CreateTopicsRequest(topics=[wanted])).topics
        assert created.error_code == 0, (created.error_code, created.error_message)
        wait_for(lambda: has_leaders(client, name, partitions), f"leaders of {name}")
        return bytes(created.topic_id)


def has_leaders(client: Asks, name: str, partitions: int) -> bool:
    from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )
    (topic,) = client.ask(request).topics
    return len(topic.partitions) == partitions and all(
        each.error_code == 0 and each.leader_id >= 0 for each in topic.partitions
    )
