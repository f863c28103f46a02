"""Counters of a consumer, for `Consumer.metrics`."""


class Counts:
    """Everything is counted since the start of the consumer."""

    __slots__ = (
        "commits",
        "commits_failed",
        "fetched_bytes",
        "fetches",
        "fetches_failed",
        "heartbeats",
        "polls_late",
        "rebalances",
        "records",
    )

    def __init__(self) -> None:
        self.records = self.fetches = self.fetches_failed = self.fetched_bytes = 0
        self.commits = self.commits_failed = 0
        self.heartbeats = self.rebalances = self.polls_late = 0

    def named(self) -> dict[str, float]:
        return {
            "records_consumed": self.records,
            "fetches_answered": self.fetches,
            "fetches_failed": self.fetches_failed,
            "fetched_bytes": self.fetched_bytes,
            "commits_done": self.commits,
            "commits_failed": self.commits_failed,
            "heartbeats_answered": self.heartbeats,
            "rebalances": self.rebalances,
            "polls_too_late": self.polls_late,
        }
