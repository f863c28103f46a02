"""What a producer counts."""


class Counts:
    """Of what has an outcome."""

    __slots__ = (
        "batches",
        "record_bytes",
        "records",
        "records_failed",
        "requests",
        "retries",
        "splits",
    )

    def __init__(self) -> None:
        self.records = self.record_bytes = self.records_failed = 0
        self.batches = self.requests = self.retries = self.splits = 0

    def named(self) -> dict[str, float]:
        return {
            "records_sent": self.records,
            "record_bytes_sent": self.record_bytes,
            "records_failed": self.records_failed,
            "batches_sent": self.batches,
            "batches_retried": self.retries,
            "batches_split": self.splits,
            "requests_sent": self.requests,
        }
