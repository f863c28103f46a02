"""One transaction shared by many processes: the driver begins and ends it, tasks write in it, and
each partition is written by one task.
"""

from collections.abc import Mapping
from typing import NamedTuple

from moldau.client.admin.groups import Committed, committed_offsets
from moldau.client.loop_thread import LoopThread
from moldau.client.producer.delivery_waiting import ThreadWaiter, mark_own_thread
from moldau.client.producer.session import ProducerSession
from moldau.core.consumer.positions import OffsetAndMetadata
from moldau.core.producer.partition_queue import ProducerIdentity
from moldau.core.spark.errors import FencedRunError
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.types import ProducerEpoch, TopicPartition

_FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}


class TransactionTicket(NamedTuple):
    """The settings and identity with which a task writes in the driver's transaction."""

    settings: dict[str, str]
    transactional_id: str
    producer_id: int
    epoch: ProducerEpoch


def as_fenced(error: MoldauError, name: str) -> MoldauError:
    """FencedRunError if the error says that another run has taken over, otherwise the error."""
    if isinstance(error, KafkaError) and error.code in _FENCED:
        return FencedRunError(f"'{name}': another run of this job has taken over; this one stops")
    return error


class OpenProducer:
    """A transactional producer that takes encoded batches instead of records."""

    def __init__(self, settings: Mapping[str, str], transactional_id: str) -> None:
        self.session = ProducerSession(None, {**settings, "transactional.id": transactional_id}, {})
        self.thread = LoopThread("moldau-transaction")
        self.thread.call(mark_own_thread)
        self.engine = self.thread.run(self.session.open(ThreadWaiter(), is_shared=True))
        self.identity: ProducerIdentity | None = None
        """The producer id and epoch of the transaction that a task writes in."""
        self.partitions: set[TopicPartition] = set()
        """Partitions that tasks of this process wrote in the transaction."""

    def close(self) -> None:
        """Closes the producer without ending its transaction."""
        if self.thread.is_usable:
            self.thread.run(self.session.close())
            self.thread.close()


class DriverTransaction:
    """The driver's side of a transaction. Its creation fences older runs and aborts the transaction
    that they left open.
    """

    def __init__(self, settings: Mapping[str, str], transactional_id: str) -> None:
        self._id = transactional_id
        self._settings = dict(settings)
        self._producer = self._open()

    def _open(self) -> OpenProducer:
        producer = OpenProducer(self._settings, self._id)
        try:
            producer.thread.run(producer.session.transactions.init())
        except BaseException:
            producer.close()
            raise
        return producer

    def begin(self) -> TransactionTicket:
        async def begin() -> ProducerIdentity:
            self._producer.session.transactions.begin()
            return self._producer.session.transactions.share()

        identity = self._producer.thread.run(begin())
        return TransactionTicket(self._settings, self._id, *identity)

    def commit(self, offsets: Mapping[TopicPartition, Committed], group_id: str) -> None:
        """Commits rows and offsets together. After a timeout, they may still be committed."""
        group_offsets = {
            partition: OffsetAndMetadata(committed.offset, committed.metadata)
            for partition, committed in offsets.items()
        }

        async def commit() -> None:
            await self._producer.session.transactions.send_offsets(group_offsets, group_id)
            await self._producer.session.transactions.commit()

        try:
            self._producer.thread.run(commit())
        except MoldauError as error:
            raise as_fenced(error, self._id) from error

    def abort(self) -> None:
        """Raises FencedRunError if another run has taken over the transactional id."""
        try:
            self._producer.thread.run(self._producer.session.transactions.abort())
        except MoldauError as error:
            if isinstance(error, KafkaError) and error.code is ErrorCode.INVALID_TXN_STATE:
                # Nothing was written, and a coordinator of the first protocol has nothing to abort.
                # A fenced producer gets another error.
                self._producer.close()
                self._producer = self._open()
                return
            raise as_fenced(error, self._id) from error

    def committed(self, group_id: str) -> dict[TopicPartition, Committed]:
        cluster = self._producer.session.cluster
        assert cluster is not None
        return self._producer.thread.run(committed_offsets(cluster, group_id))

    def close(self) -> None:
        self._producer.close()
