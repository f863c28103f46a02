"""Records of a Produce request that outlive its handler's synchronous part. A request that exceeds
the shared read buffer has a buffer of its own: its views stay valid.
"""

from moldau.net.frame_reader import SCRATCH_BYTES
from moldau.protocol.messages.produce import ProduceRequest
from moldau.types import Buffer

BUFFERS = (memoryview, bytearray, bytes)


def keep_records(request: ProduceRequest) -> None:
    """Copies records that may lie in the shared read buffer."""
    if records_bytes(request) <= SCRATCH_BYTES:
        for topic in request.topic_data:
            for sent in topic.partition_data:
                if isinstance(sent.records, BUFFERS):
                    sent.records = bytearray(sent.records)


def records_bytes(request: ProduceRequest) -> int:
    topics = request.topic_data
    return sum(len(sent.records or b"") for topic in topics for sent in topic.partition_data)


def writable(records: Buffer) -> Buffer:
    """Returns a writable copy if necessary: an append patches its input."""
    if isinstance(records, bytes) or (isinstance(records, memoryview) and records.readonly):
        return bytearray(records)
    return records
