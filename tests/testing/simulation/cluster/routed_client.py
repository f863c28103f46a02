"""A client of a simulated cluster: each request goes to the broker that serves it, as with real
clients: a partition's leader, a group's coordinator, or any broker.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

from testing.simulation.talking import Client

from moldau.net.clock import Clock
from moldau.net.request_channel import ChannelError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.wire.schema import Message

_METADATA_VERSION = 12
_COORDINATOR_VERSION = 6
_KNOWN_FOR_MS = 400
_OF_GROUPS = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.OFFSET_COMMIT})
_ANY = ("", -1)

BrokerAddress = tuple[str, int]


class RoutedClient(Client):
    """Knows an address for a moment only; then it asks again, any of the brokers."""

    def __init__(
        self, clock: Clock, brokers: Sequence[BrokerAddress], name: str, chance: Random
    ) -> None:
        super().__init__(clock, brokers[0], name)
        self._chance = chance
        self._at = {address: Client(clock, address, name) for address in brokers}
        self._known: dict[tuple[str, int], tuple[float, BrokerAddress]] = {}

    async def ask_in_order(self, requests: Sequence[Message], version: int) -> list[Any]:
        try:
            at = self._at[await self._address_of(_target(requests[0]))]
        except ChannelError as error:
            return [error] * len(requests)
        return await at.ask_in_order(requests, version)

    async def _address_of(self, target: tuple[str, int]) -> BrokerAddress:
        if target == _ANY:
            return self._chance.choice(list(self._at))
        now_ms = self.clock.mono_ms()
        until_ms, address = self._known.get(target, (0.0, ("", 0)))
        if until_ms <= now_ms:
            address = await self._find(target)
            self._known[target] = self.clock.mono_ms() + _KNOWN_FOR_MS, address
        return address

    async def _find(self, target: tuple[str, int]) -> BrokerAddress:
        name, index = target
        any_broker = self._at[self._chance.choice(list(self._at))]
        if index < 0:
            asked = FindCoordinatorRequest(key_type=0, coordinator_keys=[name])
            found = (await any_broker.ask(asked, _COORDINATOR_VERSION)).coordinators[0]
            return self._checked(found.host, found.port, name)
        topics = [MetadataRequestTopic(name=name)]
        answer = await any_broker.ask(
            MetadataRequest(topics=topics, allow_auto_topic_creation=False), _METADATA_VERSION
        )
        for partition in answer.topics[0].partitions:
            if partition.partition_index == index:
                for broker in answer.brokers:
                    if broker.node_id == partition.leader_id:
                        return self._checked(broker.host, broker.port, name)
        raise ChannelError(f"{name}-{index} has no leader")

    def _checked(self, host: str, port: int, name: str) -> BrokerAddress:
        if (host, port) not in self._at:
            raise ChannelError(f"no broker serves {name}")
        return host, port


def _target(request: Any) -> tuple[str, int]:
    """A topic and a partition; or a group, with -1."""
    key = ApiKey(request.API_KEY)
    if key is ApiKey.PRODUCE:
        topic = request.topic_data[0]
        return topic.name, topic.partition_data[0].index
    if key is ApiKey.FETCH:
        topic = request.topics[0]
        return topic.topic, topic.partitions[0].partition
    if key is ApiKey.OFFSET_FETCH:
        return request.groups[0].group_id, -1
    return (request.group_id, -1) if key in _OF_GROUPS else _ANY
