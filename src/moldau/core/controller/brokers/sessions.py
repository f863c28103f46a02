"""Which brokers are alive, by the heartbeats that the active controller has received. Sessions are
not in the log: a new active controller gives every unfenced broker a full session.
"""

from collections.abc import Iterable

from moldau.core.metadata.image import BrokerImage
from moldau.types import BrokerId


class BrokerSessions:
    """Changed only by the controller: after a decided heartbeat and when a record is replayed."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        # Keyed by (broker id, broker epoch): a new incarnation has a session of its own.
        self._heard_at_ms: dict[tuple[BrokerId, int], float] = {}
        self._metadata_offsets: dict[BrokerId, int] = {}
        self._shutdown_offsets: dict[BrokerId, int] = {}
        self._registered_at: dict[BrokerId, int] = {}
        self._known_from = -1

    def activate(self, brokers: Iterable[BrokerImage], offset: int, now_ms: float) -> None:
        """A controller becomes active with an image that ends at `offset`."""
        self._heard_at_ms = {
            (broker.broker_id, broker.epoch): now_ms for broker in brokers if not broker.is_fenced
        }
        self._metadata_offsets.clear()
        self._shutdown_offsets.clear()
        self._registered_at.clear()
        self._known_from = offset

    def heard(self, broker_id: BrokerId, broker_epoch: int, now_ms: float) -> None:
        self._heard_at_ms[broker_id, broker_epoch] = now_ms

    def excuse(self, ms: float, now_ms: float) -> None:
        """Extends every session by a time in which this controller could not read heartbeats, to a
        full session at most: a heartbeat that was read after that time needs no excuse.
        """
        self._heard_at_ms = {
            key: min(heard + ms, now_ms) for key, heard in self._heard_at_ms.items()
        }

    def caught_up_to(self, broker_id: BrokerId, metadata_offset: int) -> None:
        self._metadata_offsets[broker_id] = metadata_offset

    def registered(self, broker_id: BrokerId, offset: int) -> None:
        """`offset` is that of the new incarnation's record."""
        self.forget(broker_id)
        self._registered_at[broker_id] = offset

    def fenced(self, broker_id: BrokerId) -> None:
        # Its next heartbeat lets it shut down at once.
        self._shutdown_offsets.pop(broker_id, None)

    def shutting_down(self, broker_id: BrokerId, offset: int) -> None:
        """Keeps the first `offset`: the record there moves the broker's last leaderships."""
        self._shutdown_offsets.setdefault(broker_id, offset)

    def forget(self, broker_id: BrokerId) -> None:
        self._heard_at_ms = {
            key: heard for key, heard in self._heard_at_ms.items() if key[0] != broker_id
        }
        self._metadata_offsets.pop(broker_id, None)
        self._shutdown_offsets.pop(broker_id, None)
        self._registered_at.pop(broker_id, None)

    def end(self, broker_id: BrokerId, broker_epoch: int) -> None:
        self._heard_at_ms.pop((broker_id, broker_epoch), None)

    def is_valid(self, broker_id: BrokerId, broker_epoch: int, now_ms: float) -> bool:
        heard = self._heard_at_ms.get((broker_id, broker_epoch))
        return heard is not None and not self._is_expired(heard, now_ms)

    def first_expired(self, now_ms: float) -> tuple[BrokerId, int] | None:
        """The (id, epoch) of a broker whose session has expired."""
        expired = (
            key for key, heard in self._heard_at_ms.items() if self._is_expired(heard, now_ms)
        )
        return next(expired, None)

    def registration_offset(self, broker_id: BrokerId) -> int:
        """At least the offset of the broker's registration."""
        return self._registered_at.get(broker_id, self._known_from)

    def metadata_offset(self, broker_id: BrokerId) -> int:
        return self._metadata_offsets.get(broker_id, -1)

    def shutdown_offset(self, broker_id: BrokerId) -> int | None:
        """None unless the broker is in controlled shutdown."""
        return self._shutdown_offsets.get(broker_id)

    def _is_expired(self, heard_at_ms: float, now_ms: float) -> bool:
        return heard_at_ms + self.session_timeout_ms < now_ms
