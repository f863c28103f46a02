"""The channel to the active controller for a broker in the same process: same requests, same
responses, not encoded. When the response arrives, the broker sees the change as well.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

from moldau.broker.controller.controller_node import ControllerNode, is_large, requested_timeout_ms
from moldau.broker.server.context import ConfigHolder
from moldau.broker.server.error_responses import error_response
from moldau.net.clock import Clock
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.wire.schema import Message

_CHANGES_LOGS = {ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS}


class LocalControllerChannel:
    def __init__(
        self,
        controller: ControllerNode,
        settings: ConfigHolder,
        caught_up: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """`caught_up` waits until the broker has opened the logs that its metadata assigns to
        it.
        """
        self._controller = controller
        self._settings = settings
        self._caught_up = caught_up
        self._clock = clock

    async def send(self, request: Message, version: int | None = None) -> Message:
        """Uses the newest version if `version` is None. A refusal is a response, too; KafkaError is
        raised if there is no response.
        """
        if version is None:
            version = request.VERSIONS[1]
        timeout_ms = self._settings.current.request_timeout_ms
        try:
            async with self._clock.timeout(timeout_ms):
                async with self._clock.timeout(max(requested_timeout_ms(request), 0)):
                    await self._controller.wait_active()
                decided = await self._controller.handle(request, version)
        except TimeoutError:
            detail = f"no response from the controller in {timeout_ms} ms"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, detail) from None
        except KafkaError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                raise
            refuse = partial(error_response, request, version, error.code, error.detail)
            answer = await asyncio.to_thread(refuse) if is_large(request) else refuse()
            if answer is None:
                raise
            return answer
        if request.API_KEY in _CHANGES_LOGS:
            await self._wait_for_logs(min(requested_timeout_ms(request), timeout_ms))
        return decided

    async def _wait_for_logs(self, timeout_ms: float) -> None:
        """Waits for the logs of new partitions, so that the caller can use them. The change itself
        is committed already.
        """
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(timeout_ms):
                await self._caught_up()
