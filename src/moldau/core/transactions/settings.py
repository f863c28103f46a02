"""Settings of the transaction coordinator. The shell takes them from the node's configuration."""

from moldau.frozen import frozen


@frozen(kw_only=True)
class TransactionSettings:
    transaction_version: int = 2
    """The finalized level of the cluster's feature."""
    timeout_max_ms: int = 900_000
    id_expiration_ms: int = 7 * 24 * 3_600_000
    expiry_check_interval_ms: int = 3_600_000
    may_commit_in_two_phases: bool = False
