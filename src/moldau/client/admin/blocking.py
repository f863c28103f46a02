"""The admin client that waits."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from moldau.client.admin import face
from moldau.client.blocking import LoopThread


class Admin:
    def __init__(
        self,
        bootstrap_servers: str | list[str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self._admin = face.Admin(bootstrap_servers, config=config, **settings)
        self._thread = LoopThread("moldau-admin")

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
        if self._thread.is_usable:
            self._thread.run(self._admin.close())
            self._thread.close()
