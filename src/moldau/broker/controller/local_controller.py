"""The controller of this node, for requests of its own broker: they are not encoded, and nothing
else differs.
"""

import asyncio
from functools import partial

from moldau.broker.controller.controller_node import ControllerNode
from moldau.broker.server.error_responses import error_response
from moldau.core.controller.decision_size import is_large
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.wire.schema import Message


class LocalController:
    def __init__(self, controller: ControllerNode) -> None:
        self._controller = controller

    @property
    def is_active(self) -> bool:
        return self._controller.is_active

    async def wait_active(self) -> None:
        await self._controller.wait_active()

    async def send(self, request: Message, version: int) -> Message:
        """A refusal is a response, too. Raises KafkaError if there is none, with NOT_CONTROLLER if
        this node does not lead the quorum, or leads it no more.
        """
        try:
            return await self._controller.handle(request, version)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                raise
            refuse = partial(error_response, request, version, error.code, error.detail)
            answer = await asyncio.to_thread(refuse) if is_large(request) else refuse()
            if answer is None:
                raise
            return answer
