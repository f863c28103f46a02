"""Sender and receiver of a request, and the common parts of all messages of the quorum: one
partition, and the addresses of nodes.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from moldau.core.quorum.rpc import Endpoints, Leadership
from moldau.core.quorum.voters import VoterEndpoint, VoterKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, error_code
from moldau.types import METADATA_PARTITION, NO_LEADER, BrokerId, LeaderEpoch, Uuid

_PORT_MAX = 65_535


class Sender(NamedTuple):
    """Fields of every request that a node sends."""

    cluster_id: str
    request_timeout_ms: int


class Receiver(NamedTuple):
    """The node that a request has reached."""

    cluster_id: str
    listener: str
    """The listener of the request: responses contain the leader's address for it."""
    leadership: Leadership

    def is_of(self, cluster_id: str | None) -> bool:
        """Whether a request is for this cluster. A sender need not name its own."""
        return cluster_id is None or cluster_id == self.cluster_id


class _Named(Protocol):
    name: str
    host: str
    port: int


class _Node(Protocol):
    node_id: int
    host: str
    port: int


NodeT = TypeVar("NodeT")
NamedT = TypeVar("NamedT")


def only_partition(topics: Sequence[Any]) -> Any | None:
    """The partition of a message about the metadata partition alone, else None."""
    if len(topics) != 1 or topics[0].topic_name != METADATA_PARTITION.topic:
        return None
    partitions = topics[0].partitions
    if len(partitions) != 1 or partitions[0].partition_index != METADATA_PARTITION.partition:
        return None
    return partitions[0]


def check_answered(number: int) -> None:
    """Raises KafkaError if the error is about the whole request."""
    code = error_code(number)
    if code is not ErrorCode.NONE:
        raise KafkaError(code, "" if code == number else f"error {number}")


def other_partition() -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the response is not about {METADATA_PARTITION}"
    )


def voter_of(node_id: int, directory_id: Uuid) -> VoterKey | None:
    """The receiver that a request names, if it does."""
    return None if node_id < 0 else VoterKey(BrokerId(node_id), directory_id)


# Addresses


def listed(endpoints: Endpoints, listener_class: type[NamedT]) -> list[NamedT]:
    """A node's endpoints, as requests list them."""
    make: Any = listener_class
    return [make(name=each.listener, host=each.host, port=each.port) for each in endpoints]


def endpoints_of(listeners: Iterable[_Named]) -> Endpoints:
    """As Kafka reads them: the first of a name counts, and case does not matter."""
    by_name: dict[str, _Named] = {}
    for each in listeners:
        by_name.setdefault(each.name, each)
    by_normal_name = {name.upper(): each for name, each in by_name.items()}
    return tuple(VoterEndpoint(name, each.host, each.port) for name, each in by_normal_name.items())


def address_at(leadership: Leadership, listener: str) -> VoterEndpoint | None:
    """The leader's address for clients of a listener."""
    wanted = listener.upper()
    for each in leadership.endpoints:
        if each.listener.upper() == wanted:
            return each
    return None


def leader_nodes(leadership: Leadership, listener: str, node_class: type[NodeT]) -> list[NodeT]:
    """The element for the leader in the node endpoints of a response."""
    address = address_at(leadership, listener)
    if address is None or leadership.leader_id < 0:
        return []
    make: Any = node_class
    return [make(node_id=leadership.leader_id, host=address.host, port=address.port)]


def leadership_of(epoch: int, leader_id: int, nodes: Iterable[_Node], listener: str) -> Leadership:
    """The leadership in a response. `listener` is the one that the request was sent to."""
    if leader_id < 0:
        return Leadership(LeaderEpoch(epoch), NO_LEADER)
    endpoints: Endpoints = ()
    for node in nodes:
        if node.node_id == leader_id:
            endpoints = endpoint_at(listener, node.host, node.port)
            break
    return Leadership(LeaderEpoch(epoch), BrokerId(leader_id), endpoints)


def endpoint_at(listener: str, host: str, port: int) -> Endpoints:
    """Empty if it is not an address: the voters record may contain it."""
    if not host or not 0 <= port <= _PORT_MAX:
        return ()
    return (VoterEndpoint(listener, host, port),)
