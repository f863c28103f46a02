"""Bounds the memory of group members: a JoinGroup may carry megabytes that its member keeps for up
to half an hour, even if its client has gone. Beyond the bound new members are refused until others
have left; those with little metadata have a reserve.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.core.groups.member import Caller, Protocols, weight_of

if TYPE_CHECKING:
    from moldau.net.clock import Clock

_log = logging.getLogger(__name__)

BYTES_MAX = 64 << 20
SMALL_BYTES = 16 << 10
_LARGE_SHARE = 0.5
_COUNT_EVERY_MS = 1_000
_LINE_EVERY_MS = 10_000
_TEXT_CHARS_MAX = 100


class MemberMemory:
    """Adds up the memory of admitted members. Before it refuses one it counts the present members:
    some may have left.
    """

    def __init__(
        self, clock: "Clock", count: Callable[[], int], bytes_max: int = BYTES_MAX
    ) -> None:
        self._clock = clock
        self._count = count
        self._bytes_max = bytes_max
        self._held = 0
        """The members hold no more than this."""
        self._counted_ms: float | None = None
        self._quiet_until_ms: float | None = None

    def admits(self, caller: Caller, protocols: Protocols, known_bytes: int = 0) -> bool:
        """Whether a member that already holds `known_bytes` may join with these protocols."""
        size = weight_of(protocols)
        growth = max(size - known_bytes, 0)
        limit = self._bytes_max * (1 if size <= SMALL_BYTES else _LARGE_SHARE)
        if self._held + growth > limit:
            self._count_again()
        if not growth or self._held + growth <= limit:
            self._held += growth
            return True
        self._log_refusal(caller, size)
        return False

    def _count_again(self) -> None:
        now_ms = self._clock.mono_ms()
        if self._counted_ms is None or now_ms - self._counted_ms >= _COUNT_EVERY_MS:
            self._counted_ms = now_ms
            self._held = self._count()

    def _log_refusal(self, caller: Caller, size: int) -> None:
        now_ms = self._clock.mono_ms()
        if self._quiet_until_ms is not None and now_ms < self._quiet_until_ms:
            return
        self._quiet_until_ms = now_ms + _LINE_EVERY_MS
        _log.warning(
            "the members of groups hold %d MB: a member with %d bytes of client %r at %s may not"
            " join before others leave",
            self._held >> 20,
            size,
            caller.client_id[:_TEXT_CHARS_MAX],
            caller.client_host.removeprefix("/"),
        )
