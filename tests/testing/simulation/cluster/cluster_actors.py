"""Clients of a simulated cluster that change its metadata, and one that tries to with what is not
valid any more. Every answer is compared with the committed metadata.
"""

from itertools import count
from random import Random
from typing import Any

from testing.simulation.actors import Work
from testing.simulation.cluster.metadata_history import MetadataHistory
from testing.simulation.cluster.quorum_observer import QuorumObserver
from testing.simulation.history import History, expect, read
from testing.simulation.talking import Client

from moldau.core.metadata.image import MetadataImage
from moldau.core.quorum.voters import Voter
from moldau.net.request_channel import ChannelError
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.protocol.messages.alter_partition import AlterPartitionRequest
from moldau.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from moldau.protocol.wire.schema import Message

NAMES = [f"name-{number}" for number in range(5)]
_TIMEOUT_MS = 5_000
_PAUSES_MS = [1, 20, 200, 1_000]
_PARTITIONS_MAX = 6
_ROUNDS_MS = (50, 500, 3_000)
_numbers = count


class Admin:
    """Creates, changes and deletes topics that others create, change and delete, too. A change that
    is acknowledged was committed between the request and the answer. A refusal is right if it was
    right at some time since the request, or since a controller that still believes to lead was up
    to date: as in Kafka, one whose successor it does not know may refuse what has become possible.
    """

    def __init__(
        self, client: Client, observer: QuorumObserver, chance: Random, values: "_numbers[int]"
    ) -> None:
        self.answers = 0
        self._observer = observer
        self._refused_since = 0
        self._client = client
        self._metadata = observer.history
        self._chance = chance
        self._values = values

    async def run(self, work: Work) -> None:
        steps = [self._create, self._create, self._delete, self._configure, self._configure]
        while not work.is_over:
            await self._chance.choice([*steps, self._grow])(self._chance.choice(NAMES))
            await self._client.clock.sleep(self._chance.choice(_PAUSES_MS))

    async def _ask(self, request: Message) -> Any:
        """None if the outcome is not known."""
        version = API_VERSIONS[ApiKey(request.API_KEY)].latest_stable
        self._refused_since = self._observer.oldest_leading()
        try:
            return await self._client.ask(request, version)
        except ChannelError:
            return None

    async def _create(self, name: str) -> None:
        began = self._metadata.end_offset
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        answer = await self._ask(CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS))
        if answer is None:
            return
        made = answer.topics[0]
        if made.error_code == ErrorCode.NONE:
            self._expect_at(self._metadata.created.get(made.topic_id), began, f"{name} is created")
        elif made.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            self._expect_some(name, exists=True)

    async def _delete(self, name: str) -> None:
        began = self._metadata.end_offset
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=_TIMEOUT_MS)
        answer = await self._ask(request)
        if answer is None:
            return
        gone = answer.responses[0]
        if gone.error_code == ErrorCode.NONE:
            self._expect_at(self._metadata.removed.get(gone.topic_id), began, f"{name} is deleted")
        elif gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._expect_some(name, exists=False)

    async def _configure(self, name: str) -> None:
        began, value = self._metadata.end_offset, str(1_000_000_000 + next(self._values))
        change = AlterableConfig(name="retention.ms", config_operation=0, value=value)
        resource = AlterConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name=name, configs=[change]
        )
        answer = await self._ask(IncrementalAlterConfigsRequest(resources=[resource]))
        if answer is None:
            return
        code = answer.responses[0].error_code
        if code == ErrorCode.NONE:
            offset = self._metadata.configured.get((name, value))
            self._expect_at(offset, began, f"{name} has retention.ms {value}")
        elif code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._expect_some(name, exists=False)

    async def _grow(self, name: str) -> None:
        began = self._metadata.end_offset
        size = self._chance.randint(2, _PARTITIONS_MAX)
        topic = CreatePartitionsTopic(name=name, count=size, assignments=None)
        answer = await self._ask(CreatePartitionsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS))
        if answer is None:
            return
        code = answer.results[0].error_code
        if code == ErrorCode.NONE:
            self.answers += 1
            sizes = [_size(image, name) for image in self._metadata.images_since(began)]
            expect(size in sizes, f"{name} has {size} partitions, but had {sizes}")
        elif code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._expect_some(name, exists=False)

    def _expect_at(self, offset: int | None, began: int, what: str) -> None:
        self.answers += 1
        expect(
            offset is not None and offset >= began,
            f"it was acknowledged that {what}; the record is at {offset}, the log ended at {began} "
            "before the request",
        )

    def _expect_some(self, name: str, *, exists: bool) -> None:
        self.answers += 1
        images = self._metadata.images_since(self._refused_since)
        expect(
            any((image.topic(name) is not None) == exists for image in images),
            f"{name} {'exists' if exists else 'does not exist'}, says the controller; at no time "
            f"since offset {self._refused_since} that was so",
        )


def _size(image: MetadataImage, name: str) -> int:
    topic = image.topic(name)
    return 0 if topic is None else len(topic.partitions)


class Imposter:
    """Sends controllers what a broker of an earlier epoch might have sent: it must have no effect
    (I11).
    """

    def __init__(
        self, controllers: list[Client], metadata: MetadataHistory, chance: Random
    ) -> None:
        self.answers = 0
        self._controllers = controllers
        self._metadata = metadata
        self._chance = chance

    async def run(self, work: Work) -> None:
        clock = self._controllers[0].clock
        while not work.is_over:
            brokers = self._metadata.image.brokers
            if brokers:
                broker = brokers[self._chance.choice(sorted(brokers))]
                await self._try(broker.broker_id, broker.epoch - self._chance.choice([1, 1, 5]))
            await clock.sleep(self._chance.choice(_ROUNDS_MS))

    async def _try(self, broker_id: int, stale_epoch: int) -> None:
        request = self._request(broker_id, max(stale_epoch, 0))
        version = API_VERSIONS[ApiKey(request.API_KEY)].latest_stable
        try:
            answer = await self._chance.choice(self._controllers).ask(request, version)
        except ChannelError:
            return
        self.answers += 1
        expect(
            answer.error_code != ErrorCode.NONE,
            f"{type(request).__name__} of broker {broker_id} in epoch {stale_epoch} was accepted",
        )

    def _request(self, broker_id: int, epoch: int) -> Message:
        match self._chance.randrange(4):
            case 0:
                return BrokerHeartbeatRequest(
                    broker_id=broker_id,
                    broker_epoch=epoch,
                    want_fence=self._chance.random() < 0.5,
                    want_shut_down=self._chance.random() < 0.5,
                )
            case 1:
                return AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
            case 2:
                return AlterPartitionRequest(broker_id=broker_id, broker_epoch=epoch)
            case _:
                return AssignReplicasToDirsRequest(broker_id=broker_id, broker_epoch=epoch)


class Operator:
    """Removes voters from the quorum, the leader among them, and adds them again."""

    def __init__(self, controllers: list[Client], observer: QuorumObserver, chance: Random) -> None:
        self.answers = 0
        self._controllers = controllers
        self._observer = observer
        self._chance = chance
        self._removed: Voter | None = None

    async def run(self, work: Work) -> None:
        clock = self._controllers[0].clock
        while not work.is_over:
            await clock.sleep(self._chance.choice(_ROUNDS_MS))
            voters = self._observer.voters()
            if self._removed is None and len(voters) == len(self._controllers):
                self._removed = self._chance.choice(list(voters.values()))
            if self._removed is None:
                continue
            if self._removed.key.node_id in voters:
                if await self._ask(_removal(self._removed)):
                    self.answers += 1
            elif await self._ask(_addition(self._removed)):
                self.answers += 1
                self._removed = None

    async def _ask(self, request: Message) -> bool:
        version = API_VERSIONS[ApiKey(request.API_KEY)].latest_stable
        try:
            answer = await self._chance.choice(self._controllers).ask(request, version)
        except ChannelError:
            return False
        return bool(answer.error_code == ErrorCode.NONE)


def _removal(voter: Voter) -> RemoveRaftVoterRequest:
    key = voter.key
    return RemoveRaftVoterRequest(
        cluster_id=None, voter_id=key.node_id, voter_directory_id=key.directory_id
    )


def _addition(voter: Voter) -> AddRaftVoterRequest:
    listeners = [
        Listener(name=each.listener, host=each.host, port=each.port) for each in voter.endpoints
    ]
    return AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=_TIMEOUT_MS,
        voter_id=voter.key.node_id,
        voter_directory_id=voter.key.directory_id,
        listeners=listeners,
    )


class Reader:
    """Reads partitions from their start, while they are written."""

    def __init__(self, client: Client, history: History, chance: Random) -> None:
        self._client = client
        self._history = history
        self._chance = chance

    async def run(self, work: Work) -> None:
        while not work.is_over:
            place = self._chance.choice(list(self._history.acknowledged))
            expected = dict(self._history.acknowledged[place])
            found = await read(self._client, place, committed=self._chance.random() < 0.5)
            self._history.check_all(place, expected, found)
            await self._client.clock.sleep(self._chance.choice(_ROUNDS_MS))
