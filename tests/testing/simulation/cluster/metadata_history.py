"""The committed metadata of a simulated cluster, replayed as it is committed: the oracle that every
node's image, every snapshot and every answer of the controller is compared with.
"""

from typing import TYPE_CHECKING

from testing.simulation.cluster.log_mirror import Entry
from testing.simulation.history import expect

from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import EMPTY_IMAGE, MetadataImage
from moldau.core.metadata.loader import CommittedBatch, MetadataLoader
from moldau.core.metadata.snapshot_file import metadata_records
from moldau.protocol.log_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from moldau.protocol.wire.schema import Message
from moldau.types import LeaderEpoch, Offset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moldau.types import Uuid


class MetadataHistory:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        """All that was committed, in its order."""
        self.images: dict[int, MetadataImage] = {}
        """By the offset of their last record, in their order."""
        self.created: dict[Uuid, int] = {}
        """Topic -> the offset of its record."""
        self.removed: dict[Uuid, int] = {}
        self.configured: dict[tuple[str, str], int] = {}
        """Resource and value -> the offset of the last such record."""
        self._by_base: dict[int, Entry] = {}
        self._loader = MetadataLoader()

    @property
    def end_offset(self) -> int:
        return self.entries[-1].last_offset + 1 if self.entries else 0

    @property
    def image(self) -> MetadataImage:
        return self._loader.image

    def entry_at(self, base_offset: int) -> Entry | None:
        return self._by_base.get(base_offset)

    def images_since(self, offset: int) -> list[MetadataImage]:
        """Each image that was the newest at some time since the log ended at `offset`."""
        since: list[MetadataImage] = []
        for end, image in reversed(self.images.items()):
            since.append(image)
            if end < offset:
                return since
        return [EMPTY_IMAGE, *since]

    # Extending

    def commit(self, entry: Entry) -> None:
        """Checks that it changes nothing that a stale node could have wanted."""
        expect(
            entry.base_offset == self.end_offset,
            f"offset {entry.base_offset} is committed after {self.end_offset}",
        )
        self.entries.append(entry)
        self._by_base[entry.base_offset] = entry
        batch = entry.batch
        records: Sequence[Message] = [] if batch.is_control else metadata_records(batch)
        for offset, record in enumerate(records, entry.base_offset):
            self._note(offset, record)
        self._loader.load(
            CommittedBatch(
                Offset(entry.base_offset),
                Offset(entry.last_offset),
                LeaderEpoch(entry.epoch),
                batch.max_timestamp,
                records,
            )
        )
        before = self._loader.image
        loaded = self._loader.flush()
        if loaded is not None:
            self._check_epochs(before, *loaded)
            self.images[loaded.image.offset] = loaded.image

    def _note(self, offset: int, record: Message) -> None:
        match record:
            case TopicRecord(topic_id=topic_id):
                expect(topic_id not in self.created, f"offset {offset}: a topic id is used twice")
                self.created[topic_id] = offset
            case RemoveTopicRecord(topic_id=topic_id):
                self.removed[topic_id] = offset
            case ConfigRecord(resource_name=name, value=str(value)):
                self.configured[name, value] = offset
            case RegisterBrokerRecord():
                self._check_registration(offset, record)
            case BrokerRegistrationChangeRecord():
                broker = self.image.brokers.get(record.broker_id)
                expect(
                    broker is not None and broker.epoch == record.broker_epoch,
                    f"offset {offset}: broker {record.broker_id} changes in epoch "
                    f"{record.broker_epoch}, it is {broker}",
                )
            case _:
                pass

    def _check_registration(self, offset: int, record: RegisterBrokerRecord) -> None:
        known = self.image.brokers.get(record.broker_id)
        if known is None:
            return
        is_new = known.incarnation_id != record.incarnation_id
        expect(
            record.broker_epoch > known.epoch if is_new else record.broker_epoch >= known.epoch,
            f"offset {offset}: broker {record.broker_id} gets epoch {record.broker_epoch} after "
            f"{known.epoch}",
        )

    def _check_epochs(
        self, before: MetadataImage, delta: MetadataDelta, image: MetadataImage
    ) -> None:
        """Epochs of a partition only rise, and each leader has an epoch of its own."""
        for name in sorted(delta.changed_topics):
            old, new = before.topic(name), image.topic(name)
            if old is None or new is None or old.topic_id != new.topic_id:
                continue
            for index, was in old.partitions.items():
                now = new.partitions[index]
                expect(
                    now.leader_epoch >= was.leader_epoch
                    and now.partition_epoch >= was.partition_epoch
                    and (now.leader == was.leader or now.leader_epoch > was.leader_epoch),
                    f"offset {image.offset}: {name}-{index} goes from {was} to {now}",
                )

    # Comparing

    def check_image(self, whose: str, image: MetadataImage) -> None:
        if image.offset < 0:
            return
        expected = self.images.get(image.offset)
        expect(expected is not None, f"{whose} is at offset {image.offset}, which no image ends at")
        expect(image == expected, f"{whose} has another image at offset {image.offset}")
