"""Counters and durations of a producer, for `Producer.metrics`."""

from collections.abc import Iterable

from moldau.core.producer.partition_queue import Outgoing


class Counts:
    """Records and batches count when their outcome is known."""

    __slots__ = (
        "_answers",
        "_batch_bytes",
        "_batches",
        "_first_attempts",
        "_latency_ms",
        "_latency_ms_max",
        "_queued_ms",
        "_record_bytes",
        "_records",
        "_requests",
        "records_failed",
        "retries",
        "splits",
    )

    def __init__(self) -> None:
        self.records_failed = self.retries = self.splits = 0
        self._records = self._record_bytes = self._batches = self._batch_bytes = 0
        self._requests = self._answers = self._first_attempts = 0
        self._queued_ms = self._latency_ms = self._latency_ms_max = 0.0

    def sent(self, batches: Iterable[Outgoing], now_ms: float) -> None:
        """A request with these batches was sent."""
        self._requests += 1
        for outgoing in batches:
            if outgoing.attempts == 1:
                self._first_attempts += 1
                self._queued_ms += now_ms - outgoing.created_ms

    def answered(self, latency_ms: float) -> None:
        self._answers += 1
        self._latency_ms += latency_ms
        self._latency_ms_max = max(self._latency_ms_max, latency_ms)

    def delivered(self, outgoing: Outgoing) -> None:
        self._batches += 1
        self._records += outgoing.batch.count
        self._record_bytes += outgoing.batch.size_bytes
        self._batch_bytes += len(outgoing.content or b"")

    def named(self) -> dict[str, float]:
        return {
            "records_sent": self._records,
            "record_bytes_sent": self._record_bytes,
            "records_failed": self.records_failed,
            "batches_sent": self._batches,
            "batch_bytes_sent": self._batch_bytes,
            "batches_retried": self.retries,
            "batches_split": self.splits,
            "queue_time_ms_avg": self._queued_ms / max(self._first_attempts, 1),
            "requests_sent": self._requests,
            "request_latency_ms_avg": self._latency_ms / max(self._answers, 1),
            "request_latency_ms_max": self._latency_ms_max,
        }
