"""The node's metrics for Prometheus. Labels are names that the cluster knows (APIs, topics,
groups), never names that a client chose, and the number of series is bounded. The exception are
the few clients that were held back: their names are escaped.
"""

import asyncio
from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from moldau.broker.metrics.counters import HELD_BACK, LATENCY_BOUNDS_MS
from moldau.broker.metrics.quorum import quorum_metrics
from moldau.core.transactions.listing import count_transactions
from moldau.net.slices import Slices

if TYPE_CHECKING:
    from moldau.broker.server.context import BrokerServices, NodeServices
    from moldau.broker.server.listener import Listener

SERIES_MAX = 20_000
"""Bound on the series of one metric; further ones are left out and counted."""


class NodeCollector:
    """Metrics of every node."""

    def __init__(self, services: "NodeServices", listeners: "list[Listener]") -> None:
        self._services = services
        self._listeners = listeners

    def collect(self) -> Iterator[Metric | None]:
        """Yields None where other tasks may run."""
        yield from self._requests()
        yield from self._network()
        yield from self._event_loop()
        yield from self._metadata()

    def _metadata(self) -> Iterator[Metric]:
        yield _counter(
            "moldau_metadata_subscriber_failures",
            "Changes of the cluster's metadata that a part of this node could not follow.",
            self._services.metadata.failures,
        )
        if self._services.quorum is not None:
            yield from quorum_metrics(self._services.quorum)

    def _requests(self) -> Iterator[Metric]:
        latencies = HistogramMetricFamily(
            "moldau_request_seconds",
            "Time from a request's arrival to its response.",
            labels=["api"],
        )
        for api_key, api in sorted(self._services.metrics.by_api.items()):
            buckets: list[tuple[str, float]] = []
            total = 0
            for bound_ms, count in zip((*LATENCY_BOUNDS_MS, None), api.buckets, strict=True):
                total += count
                buckets.append(("+Inf" if bound_ms is None else str(bound_ms / 1000), total))
            latencies.add_metric([api_key.name], buckets, api.total_ms / 1000)
        yield latencies

    def _network(self) -> Iterator[Metric]:
        metrics = self._services.metrics
        yield _counter("moldau_received_bytes", "Bytes received from clients.", metrics.bytes_in)
        yield _counter("moldau_sent_bytes", "Bytes sent to clients.", metrics.bytes_out)
        yield _counter(
            "moldau_connections_made",
            "Connections accepted since the start.",
            metrics.connections_made,
        )
        yield _counter(
            "moldau_connections_refused",
            "Connections refused because of a limit.",
            metrics.connections_refused,
        )
        yield from self._held_back()
        yield from self._memory()
        open_now = GaugeMetricFamily("moldau_connections", "Open connections.", labels=["listener"])
        for listener in self._listeners:
            open_now.add_metric([listener.name], listener.connection_count)
        yield open_now

    def _event_loop(self) -> Iterator[Metric]:
        metrics = self._services.metrics
        yield GaugeMetricFamily(
            "moldau_event_loop_lag_seconds",
            "Delay with which the event loop ran its latest timer.",
            value=metrics.loop_lag_ms / 1000,
        )
        yield GaugeMetricFamily(
            "moldau_event_loop_lag_max_seconds",
            "The largest lag of the event loop since the start.",
            value=metrics.loop_lag_max_ms / 1000,
        )
        yield GaugeMetricFamily(
            "moldau_event_loop_held_max_seconds",
            "The longest time in the last minute for which one task blocked the event loop.",
            value=metrics.loop.recent_ms() / 1000,
        )
        by_api = GaugeMetricFamily(
            "moldau_request_held_max_seconds",
            "The longest time in the last minute for which one request blocked the event loop.",
            labels=["api"],
        )
        for name, longest_ms in metrics.loop.recent_ms_by_api().items():
            by_api.add_metric([name], longest_ms / 1000)
        yield by_api
        by_kind = GaugeMetricFamily(
            "moldau_callback_held_max_seconds",
            "The longest time in the last minute for which one callback that serves no request"
            " blocked the event loop.",
            labels=["kind"],
        )
        for name, longest_ms in metrics.loop.recent_ms_by_kind().items():
            by_kind.add_metric([name], longest_ms / 1000)
        yield by_kind

    def _held_back(self) -> Iterator[Metric]:
        metrics = self._services.metrics
        held_back = CounterMetricFamily(
            "moldau_clients_held_back",
            "How often clients were held back because they took more than their share.",
            labels=["of"],
        )
        for kind in HELD_BACK:
            held_back.add_metric([kind], metrics.held_back.by_kind[kind])
        yield held_back
        named = CounterMetricFamily(
            "moldau_client_held_back",
            "How often a client was held back, for the ten held back most often or most recently.",
            labels=["host", "client_id", "of"],
        )
        for client, count in list(metrics.held_back.by_client.items()):
            named.add_metric(list(client), count)
        yield named

    def _memory(self) -> Iterator[Metric]:
        budget = self._services.budget
        held = GaugeMetricFamily(
            "moldau_inflight_bytes",
            "Bytes of requests and responses in memory, bounded by moldau.inflight.bytes.max.",
            labels=["of"],
        )
        held.add_metric(["unfinished requests"], budget.unfinished)
        held.add_metric(["waiting requests"], budget.held)
        held.add_metric(["unread answers"], budget.answer_bytes)
        held.add_metric(["large answers"], budget.large_answers.bytes)
        yield held


class BrokerCollector(NodeCollector):
    """Further metrics of a node with the broker role."""

    def __init__(self, services: "BrokerServices", listeners: "list[Listener]") -> None:
        super().__init__(services, listeners)
        self._broker = services

    def collect(self) -> Iterator[Metric | None]:
        yield from super().collect()
        yield from self._reads()
        yield from self._logs()
        yield from self._disks()
        yield from self._damage()
        yield from self._groups()
        yield from self._transactions()

    def _reads(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "moldau_compactions",
            "Logs that are being compacted.",
            value=self._broker.replicas.cleaning.running_count,
        )
        cold_reads = self._broker.replicas.cold_reads
        yield _counter(
            "moldau_cold_reads",
            "Reads that the page cache could not serve, done in threads.",
            cold_reads.count,
        )
        yield _counter(
            "moldau_cold_read_bytes",
            "Bytes of the reads that the page cache could not serve.",
            cold_reads.bytes,
        )

    def _logs(self) -> Iterator[Metric | None]:
        labels = ["topic", "partition"]
        sizes = GaugeMetricFamily("moldau_log_bytes", "Size of a log on disk.", labels=labels)
        starts = GaugeMetricFamily(
            "moldau_log_start_offset", "First offset of a log.", labels=labels
        )
        ends = GaugeMetricFamily(
            "moldau_log_end_offset", "Offset of the next record.", labels=labels
        )
        marks = GaugeMetricFamily(
            "moldau_high_watermark", "End of the committed records.", labels=labels
        )
        stable = GaugeMetricFamily(
            "moldau_last_stable_offset",
            "End of the records before the first open transaction.",
            labels=labels,
        )
        partitions = self._broker.replicas.partitions
        for (topic, index), partition in islice(sorted(partitions.items()), SERIES_MAX):
            yield None
            if not partition.has_log:
                continue
            log, names = partition.log, [topic, str(index)]
            sizes.add_metric(names, log.segments.size_in_bytes)
            starts.add_metric(names, log.log_start_offset)
            ends.add_metric(names, log.log_end_offset)
            marks.add_metric(names, log.high_watermark)
            stable.add_metric(names, log.last_stable_offset)
        yield from (sizes, starts, ends, marks, stable)
        yield GaugeMetricFamily(
            "moldau_partitions", "Partitions with a replica here.", value=len(partitions)
        )

    def _disks(self) -> Iterator[Metric]:
        replicas = self._broker.replicas
        refused = CounterMetricFamily(
            "moldau_disk_writes_refused",
            "Writes refused because the disk is full.",
            labels=["directory"],
        )
        full = GaugeMetricFamily(
            "moldau_disk_full",
            "1 while the disk is full and writes are refused.",
            labels=["directory"],
        )
        for logs in replicas.store.logs:
            path = str(logs.directory.path)
            refused.add_metric([path], replicas.reports.refused_writes[path])
            full.add_metric([path], logs.directory.is_refusing)
        failures = CounterMetricFamily(
            "moldau_background_failures", "Failures of background work on logs.", labels=["work"]
        )
        for work, count in sorted(replicas.reports.failures.items()):
            failures.add_metric([work], count)
        yield from (refused, full, failures)

    def _damage(self) -> Iterator[Metric | None]:
        replicas = self._broker.replicas
        yield _counter(
            "moldau_damage_found",
            "Damaged ranges of offsets found since the start.",
            replicas.reports.damage_found,
        )
        labels = ["topic", "partition"]
        ranges = GaugeMetricFamily(
            "moldau_damaged_ranges", "Ranges of offsets that cannot be read.", labels=labels
        )
        offline = GaugeMetricFamily(
            "moldau_damaged_offline",
            "1 if damage takes the whole partition offline.",
            labels=labels,
        )
        for log in list(replicas.store):
            yield None
            count = len(log.damaged) + (log.damage is not None)
            if count and len(ranges.samples) < SERIES_MAX:
                names = [log.topic_partition.topic, str(log.topic_partition.partition)]
                ranges.add_metric(names, count)
                offline.add_metric(names, log.damage is not None)
        yield from (ranges, offline)

    def _groups(self) -> Iterator[Metric | None]:
        groups = self._broker.groups
        states = GaugeMetricFamily("moldau_groups", "Groups by state.", labels=["state"])
        for state, count in sorted(groups.count_by_state().items()):
            states.add_metric([state], count)
        yield states
        yield GaugeMetricFamily(
            "moldau_group_members", "Members of all groups.", value=groups.member_count()
        )
        lags = GaugeMetricFamily(
            "moldau_group_lag",
            "Records between a group's committed offset and the high watermark.",
            labels=["group", "topic", "partition"],
        )
        for group, topic, index, committed in groups.committed_offsets(SERIES_MAX):
            yield None
            partition = self._broker.replicas.get(topic, index)
            if partition is not None and partition.has_log:
                lag = max(partition.log.high_watermark - committed, 0)
                lags.add_metric([group, topic, str(index)], lag)
        yield lags

    def _transactions(self) -> Iterator[Metric]:
        states = GaugeMetricFamily(
            "moldau_transactions", "Transactional ids by state.", labels=["state"]
        )
        shards = self._broker.transactions.shards()
        for state, count in count_transactions(chain.from_iterable(shards)).items():
            states.add_metric([state], count)
        yield states
        now_ms = self._broker.clock.wall_ms()
        timeout_max_ms = self._broker.config.transaction_max_timeout_ms
        yield GaugeMetricFamily(
            "moldau_partitions_with_late_transactions",
            "Partitions with an overdue transaction: see `moldau transactions find-hanging`.",
            value=sum(
                partition.has_log
                and partition.log.producers.has_late_transaction(
                    now_ms, transaction_timeout_max_ms=timeout_max_ms
                )
                for partition in self._broker.replicas.partitions.values()
            ),
        )


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)


class _Collected:
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


async def render(collector: NodeCollector) -> bytes:
    """Returns the current metrics as text. The numbers are collected in slices; formatting them
    takes ten times as long with many partitions, so a thread does it.
    """
    metrics: list[Metric] = []
    slices = Slices()
    for metric in collector.collect():
        if metric is not None:
            metrics.append(metric)
        if slices.is_over:
            await slices.next()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(metrics))
    return await asyncio.get_running_loop().run_in_executor(None, generate_latest, registry)
