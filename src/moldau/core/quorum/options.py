"""The settings of the quorum."""

from moldau.core.quorum.rpc import Destination
from moldau.frozen import frozen

# As in Kafka: a leader that no majority fetches from for this many fetch time-outs resigns.
_CHECK_QUORUM_FACTOR = 1.5


@frozen(kw_only=True)
class QuorumOptions:
    listener: str
    """The controllers' listener: the address of a voter that others use."""
    may_become_voter: bool = True
    """Brokers only ever observe."""
    auto_join: bool = False
    bootstrap: tuple[Destination, ...] = ()
    election_timeout_ms: int = 1_000
    election_backoff_max_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_max_bytes: int = 1 << 20
    fetch_snapshot_max_bytes: int = 1 << 20
    fetch_wait_ms: int = 500

    @property
    def check_quorum_ms(self) -> float:
        return self.fetch_timeout_ms * _CHECK_QUORUM_FACTOR

    @property
    def begin_epoch_ms(self) -> float:
        return self.fetch_timeout_ms / 2

    @property
    def refused_write_pause_ms(self) -> float:
        """Short enough that the leader still counts on this follower."""
        return self.fetch_timeout_ms / 2
