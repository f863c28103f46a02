"""Reports to the controller which log directory of this node holds a replica, where the metadata
says otherwise: the broker chose the directory, or the replica was moved (KIP-858).
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, error_code
from moldau.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
)
from moldau.types import BrokerId, Uuid

if TYPE_CHECKING:
    from moldau.broker.replicas.partition import Partition
    from moldau.broker.server.context import ControllerChannel
    from moldau.net.clock import Clock
    from moldau.net.tasks import Tasks

_log = logging.getLogger(__name__)

_REPLICAS_PER_REQUEST_MAX = 2_000
_RETRY_MS = 1_000

_Replica = tuple[Uuid, int]


class DirectoryAssignments:
    def __init__(
        self,
        node_id: BrokerId,
        controller: "ControllerChannel",
        broker_epoch: Callable[[], int],
        tasks: "Tasks",
        clock: "Clock",
    ) -> None:
        self._node_id = node_id
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._tasks = tasks
        self._clock = clock
        self._unreported: dict[_Replica, Uuid] = {}
        self._is_reporting = False

    def placed(self, partition: "Partition") -> None:
        directory_id = partition.log.directory.meta.directory_id
        if directory_id is None:
            return
        replica = (partition.topic_id, partition.topic_partition.partition)
        self._unreported[replica] = directory_id
        if not self._is_reporting:
            self._is_reporting = True
            _ = self._tasks.start(self._report(), "report directories to the controller")

    async def _report(self) -> None:
        try:
            while self._unreported:
                assignments = dict(list(self._unreported.items())[:_REPLICAS_PER_REQUEST_MAX])
                if await self._send(assignments):
                    for replica, directory_id in assignments.items():
                        if self._unreported.get(replica) == directory_id:
                            del self._unreported[replica]
                else:
                    await self._clock.sleep(_RETRY_MS)
        finally:
            self._is_reporting = False

    async def _send(self, assignments: dict[_Replica, Uuid]) -> bool:
        """True if there is nothing to retry: a replica that the controller refused no longer
        exists.
        """
        try:
            response = await self._controller.send(self._request(assignments))
        except KafkaError as error:
            _log.warning("the directory assignment did not reach the controller: %s", error)
            return False
        assert isinstance(response, AssignReplicasToDirsResponse)
        if response.error_code:
            code = error_code(response.error_code).name
            _log.warning("the controller rejected the directory assignment: %s", code)
            return response.error_code == ErrorCode.UNSUPPORTED_VERSION
        return True

    def _request(self, assignments: dict[_Replica, Uuid]) -> AssignReplicasToDirsRequest:
        directories: dict[Uuid, dict[Uuid, list[int]]] = {}
        for (topic_id, index), directory_id in assignments.items():
            directories.setdefault(directory_id, {}).setdefault(topic_id, []).append(index)
        return AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                AssignReplicasToDirsRequestDirectoryData(
                    id=directory_id,
                    topics=[
                        AssignReplicasToDirsRequestTopicData(
                            topic_id=topic_id,
                            partitions=[
                                AssignReplicasToDirsRequestPartitionData(partition_index=index)
                                for index in indexes
                            ],
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory_id, topics in directories.items()
            ],
        )
