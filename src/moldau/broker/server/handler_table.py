"""The APIs that a listener serves, the versions that it advertises, and their handlers. ApiVersions
advertises exactly what is in the table.
"""

from collections.abc import Callable, Mapping

from moldau.broker.server.context import Handler
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.messages import request_class


class HandlerTable:
    """Handlers are imported at their first request: a node starts without most of them."""

    def __init__(
        self,
        loaders: Mapping[ApiKey, Callable[[], Handler]],
        *,
        controller: bool,
        unstable: bool = False,
    ) -> None:
        """`unstable`: includes versions that are not final yet."""
        self._loaders = loaders
        self._handlers: dict[ApiKey, Handler] = {}
        self.versions: dict[ApiKey, tuple[int, int]] = {}
        """The advertised versions."""
        for api_key in loaders:
            known = API_VERSIONS[api_key]
            advertised = known.controller if controller else known.broker
            assert advertised is not None, api_key
            assert known.known is not None, api_key
            oldest, latest = advertised
            self.versions[api_key] = (oldest, known.known[1] if unstable else latest)

    def serves(self, api_key: ApiKey, version: int) -> bool:
        """Older Produce versions are advertised for the sake of old clients and still refused."""
        advertised = self.versions.get(api_key)
        if advertised is None or not advertised[0] <= version <= advertised[1]:
            return False
        return version >= request_class(api_key).VERSIONS[0]

    def handler(self, api_key: ApiKey) -> Handler:
        handler = self._handlers.get(api_key)
        if handler is None:
            handler = self._handlers[api_key] = self._loaders[api_key]()
        return handler
