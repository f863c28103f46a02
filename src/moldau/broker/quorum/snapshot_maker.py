"""Makes snapshots of the metadata when enough records were committed since the last one, or enough
time has passed. The file is written in a thread, from an immutable image.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from moldau.broker.quorum.quorum_node import QuorumNode
from moldau.broker.quorum.snapshots import SnapshotId, StoredSnapshot
from moldau.config.broker import BrokerConfig
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import MetadataImage
from moldau.core.metadata.snapshot_file import SnapshotHead, encode_snapshot
from moldau.net.clock import Clock
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

_log = logging.getLogger(__name__)

_STOP_MS = 1_000


class SnapshotMaker:
    """Subscribe `image_changed` to the feed."""

    def __init__(self, quorum: QuorumNode, config: BrokerConfig, clock: Clock) -> None:
        self._quorum = quorum
        self._config = config
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="moldau-snapshot")
        self._running: asyncio.Future[StoredSnapshot] | None = None
        self._is_stopped = False
        self._is_given_up = False
        self._bytes_at_last = 0
        self._last_ms = clock.mono_ms()

    def image_changed(self, _delta: MetadataDelta, image: MetadataImage) -> None:
        if self._running is None and not self._is_stopped and self._is_due():
            head = self._quorum.snapshot_head(image)
            if head is not None:
                self._bytes_at_last = self._quorum.committed_bytes
                self._last_ms = self._clock.mono_ms()
                self._begin(head, image)

    async def stop(self) -> None:
        """Waits for a snapshot in progress, for a second; then it is given up, and the next start
        makes another one when it is due. Call it before the quorum node stops.
        """
        self._is_stopped = True
        if self._running is not None:
            with contextlib.suppress(TimeoutError):
                async with self._clock.timeout(_STOP_MS):
                    await asyncio.wait([self._running])
        self._is_given_up = True
        if self._running is not None:
            await asyncio.wait([self._running])
        self._thread.shutdown()

    def _is_due(self) -> bool:
        committed_bytes = self._quorum.committed_bytes - self._bytes_at_last
        if committed_bytes >= self._config.metadata_log_max_record_bytes_between_snapshots:
            return True
        interval_ms = self._config.metadata_log_max_snapshot_interval_ms
        return 0 < interval_ms <= self._clock.mono_ms() - self._last_ms

    def _begin(self, head: SnapshotHead, image: MetadataImage) -> None:
        snapshot_id = SnapshotId(image.epoch, image.offset + 1)
        from moldau.core.metadata.snapshot_records import snapshot_records

        encoded = encode_snapshot(head, snapshot_records(image), now_ms=self._clock.wall_ms())
        batches = self._unless_given_up(encoded)
        self._running = asyncio.get_running_loop().run_in_executor(
            self._thread, self._quorum.log.snapshots.write, snapshot_id, batches
        )
        self._running.add_done_callback(lambda done: self._finish(snapshot_id, done))

    def _unless_given_up(self, batches: Iterable[bytes]) -> Iterator[bytes]:
        """In the thread that writes them."""
        for batch in batches:
            if self._is_given_up:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "the node stops")
            yield batch

    def _finish(self, snapshot_id: SnapshotId, done: asyncio.Future[StoredSnapshot]) -> None:
        self._running = None
        log = self._quorum.log
        try:
            with log.directory.offline_on_error:
                stored = done.result()
            if snapshot_id.offset < log.start_offset:
                # Meanwhile the log has started over after a later one of the leader.
                log.directory.do(log.snapshots.removing([snapshot_id], log.directory))
                return
            log.snapshots.add(stored)
            self._quorum.snapshot_made(snapshot_id)
            self._quorum.store_recovery_point()
            log.clean(self._clock.wall_ms())
        except KafkaError as refusal:
            _log.warning("metadata snapshot %s failed: %s", snapshot_id.file_name, refusal)
        else:
            _log.info("made metadata snapshot %s", snapshot_id.file_name)
