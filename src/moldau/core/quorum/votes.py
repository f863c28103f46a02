"""The votes of one election, as the nominee counts them."""

from moldau.core.quorum.voters import VoterKey, VoterSet


class Votes:
    def __init__(self, voters: VoterSet, own_id: int) -> None:
        self._voters = {node_id: voter.key for node_id, voter in voters.by_id.items()}
        self._is_granted: dict[int, bool] = {own_id: True}

    def count(self, node_id: int, *, is_granted: bool) -> None:
        """Only voters count, and a vote that was granted stays granted."""
        if node_id in self._voters and not self._is_granted.get(node_id, False):
            self._is_granted[node_id] = is_granted

    @property
    def granting(self) -> tuple[int, ...]:
        return tuple(node_id for node_id in self._voters if self._is_granted.get(node_id, False))

    @property
    def missing(self) -> tuple[VoterKey, ...]:
        """Voters that have not answered."""
        return tuple(
            key for node_id, key in self._voters.items() if node_id not in self._is_granted
        )

    @property
    def is_won(self) -> bool:
        return len(self.granting) >= self._majority

    @property
    def is_lost(self) -> bool:
        """Even if all that have not answered granted their votes."""
        return len(self.granting) + len(self.missing) < self._majority

    @property
    def _majority(self) -> int:
        return len(self._voters) // 2 + 1
