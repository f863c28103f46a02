"""Listeners: the parts of a node that follow the metadata log."""

from moldau.core.metadata.image import MetadataImage
from moldau.core.metadata.loader import CommittedBatch
from moldau.types import BrokerId


class QuorumListener:
    """Receives what is committed. Every call is made in the node's event loop, in the order of the
    log; an exception stops the node, since no listener may miss a record.
    """

    def prepare_snapshot(self, image: MetadataImage) -> None:
        """The long part of `on_snapshot`, which follows with the same image. The one call that is
        made in another thread; batches may be committed meanwhile.
        """

    def on_snapshot(self, image: MetadataImage) -> None:
        """Everything up to and including `image.offset`; batches follow from there."""

    def on_committed(self, batch: CommittedBatch) -> None:
        """The next batch. A control batch has no records, only offsets."""

    def on_commits_end(self) -> None:
        """No further batch is committed at the moment."""

    def on_leader_change(self, epoch: int, leader_id: BrokerId) -> None:
        """-1 if there is no leader. If this node leads, everything before the epoch was delivered;
        a KafkaError lets it resign if another voter can lead instead.
        """
