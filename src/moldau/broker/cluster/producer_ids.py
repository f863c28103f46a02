"""Producer ids, unique in the cluster: the controller allocates them in blocks of a thousand. The
rest of a block is lost when the node stops.
"""

import asyncio
from collections.abc import Callable, Iterator

from moldau.broker.server.context import ControllerChannel
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, error_code
from moldau.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from moldau.types import BrokerId, ProducerId


class ProducerIds:
    """`broker_epoch` returns the epoch that this broker is registered with."""

    def __init__(
        self, broker_id: BrokerId, controller: ControllerChannel, broker_epoch: Callable[[], int]
    ) -> None:
        self._broker_id = broker_id
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._block: Iterator[int] = iter(())
        self._block_lock = asyncio.Lock()

    async def next(self) -> ProducerId:
        """Raises COORDINATOR_LOAD_IN_PROGRESS, which clients retry, if the controller cannot
        allocate a block now.
        """
        producer_id = next(self._block, None)
        while producer_id is None:
            async with self._block_lock:
                producer_id = next(self._block, None)
                if producer_id is None:
                    self._block = await self._new_block()
                    producer_id = next(self._block, None)
        return ProducerId(producer_id)

    async def _new_block(self) -> Iterator[int]:
        request = AllocateProducerIdsRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch()
        )
        try:
            response = await self._controller.send(request)
        except KafkaError as error:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
        assert isinstance(response, AllocateProducerIdsResponse)
        if response.error_code or response.producer_id_len <= 0:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"no producer ids: {error_code(response.error_code).name}",
            )
        start = response.producer_id_start
        return iter(range(start, start + response.producer_id_len))
