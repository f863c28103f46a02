"""Splits a batch that is too large for the broker into two."""

from moldau.core.producer.batching import Batch
from moldau.protocol.records.batches import BATCH_HEADER_SIZE, Record
from moldau.protocol.records.record_loops import decode_records, encode_records


def halves(batch: Batch) -> list[Batch]:
    """Two batches of about the same size; order and timestamps of the records stay."""
    body = batch.seal()
    records = decode_records(
        body, (BATCH_HEADER_SIZE, len(body)), batch.count, 0, batch.base_timestamp, None
    )
    middle = _middle(records)
    made = []
    for part in (records[:middle], records[middle:]):
        base_timestamp = part[0].timestamp
        numbered = [record._replace(offset=number) for number, record in enumerate(part)]
        encoded = encode_records(numbered, base_timestamp, BATCH_HEADER_SIZE, 0)
        latest = max(record.timestamp for record in part)
        own = Batch.of_rows(
            batch.topic, batch.partition, encoded, (len(part), base_timestamp, latest)
        )
        own.waiter = batch.waiter
        made.append(own)
    return made


def _middle(records: list[Record]) -> int:
    """The index of the second half's first record; both halves have at least one."""
    sizes = [len(record.key or b"") + len(record.value or b"") for record in records]
    half = sum(sizes) / 2
    seen = 0
    for number, size in enumerate(sizes[:-1]):
        seen += size
        if seen >= half:
            return number + 1
    return len(records) - 1
