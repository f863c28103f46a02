"""The common part of the blocking and the asyncio producer: settings, and the engine made from
them.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.settings import cluster_settings
from moldau.client.errors import ClientError
from moldau.client.producer.engine import ProducerEngine
from moldau.client.producer.options import engine_options, producer_config
from moldau.client.producer.record_preparation import Preparation, ProducerRecord
from moldau.client.producer.transactor import Transactor
from moldau.core.producer.batching import Batch, Delivery, DeliveryWaiter, Piece
from moldau.protocol.errors import MoldauError
from moldau.protocol.records.batches import BATCH_HEADER_SIZE


class ProducerSession:
    """Checks the settings when it is made; `open` makes the engine in its event loop."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] | None,
        config: Mapping[str, Any] | None,
        settings: Mapping[str, Any],
    ) -> None:
        if isinstance(bootstrap_servers, Iterable) and not isinstance(
            bootstrap_servers, str | bytes
        ):
            bootstrap_servers = list(bootstrap_servers)
        self.config = producer_config(config, {**settings, "bootstrap_servers": bootstrap_servers})
        self.options = engine_options(self.config)
        self.cluster_settings = cluster_settings(self.config, retry_for_ms=self.config.max_block_ms)
        self.preparation = Preparation(self.config, self._partition_count)
        self.cluster: Cluster | None = None
        self.engine: ProducerEngine | None = None
        self.transactor: Transactor | None = None

    async def open(self, waiter: DeliveryWaiter, *, is_shared: bool) -> ProducerEngine:
        self.cluster = Cluster(self.cluster_settings)
        engine = ProducerEngine(self.cluster, self.options, waiter, is_shared=is_shared)
        if self.config.transactional_id is not None:
            self.transactor = Transactor(
                engine,
                self.config.transactional_id,
                self.config.transaction_timeout_ms,
                self.options.max_block_ms,
            )
        self.engine = engine
        return engine

    async def append(self, record: ProducerRecord) -> Delivery:
        """Appends a record, after waiting for memory or metadata."""
        engine = self.opened
        if self.transactor is not None:
            self.transactor.state.check_open("send")
        if record.partition is None and not self.preparation.is_plain:
            await engine.topic(record.topic)
            record = self.preparation.route(record)
        parts = record.key, record.value, record.partition, record.timestamp, record.headers
        delivery: Delivery = await engine.append(record.topic, parts)
        return delivery

    def watch(self, delivery: Delivery) -> Delivery:
        if self.preparation.has_interceptors:
            delivery.add_callback(self.preparation.acknowledge)
        return delivery

    async def append_table(self, topic: str, table: Any, partition: int | None) -> list[Piece]:
        from moldau.client.producer.tables import table_batches

        engine = self.opened
        if self.transactor is not None:
            self.transactor.state.check_open("send")
        known = await engine.topic(topic, partition=partition)
        pieces: list[Piece] = []
        for batch in table_batches(engine, known, table, partition):
            await self._append_batch(engine, batch)
            pieces.append((batch, 0, batch.count))
            # Lets responses arrive.
            await asyncio.sleep(0)
        return pieces

    async def _append_batch(self, engine: ProducerEngine, batch: Batch) -> None:
        most = self.options.rules.request_bytes_max
        if batch.size_bytes > most + BATCH_HEADER_SIZE and batch.count == 1:
            raise ClientError(f"a row of {batch.size_bytes} bytes; max.request.size is {most}")
        await engine.enqueue(batch)

    @property
    def opened(self) -> ProducerEngine:
        assert self.engine is not None
        return self.engine

    @property
    def transactions(self) -> Transactor:
        if self.transactor is None:
            raise ClientError("transactions need a transactional.id")
        return self.transactor

    async def finish(self) -> None:
        """Waits until everything is delivered or has failed. Aborts an open transaction."""
        if self.transactor is not None and self.transactor.is_open:
            await self.transactor.abort()
        await self.opened.flush()

    async def end(self) -> None:
        """Finishes and closes. Deliveries report what could not be sent."""
        with contextlib.suppress(MoldauError):
            await self.finish()
        await self.close()

    async def close(self) -> None:
        if self.engine is not None:
            await self.engine.close()
        if self.cluster is not None:
            await self.cluster.__aexit__(None, None, None)
        self.preparation.close()

    def _partition_count(self, topic: str) -> int | None:
        if self.engine is None:
            return None
        buffers = self.engine.appender.topic(topic)
        return None if buffers is None else buffers.partition_count
