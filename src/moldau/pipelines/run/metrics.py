"""Serves `/metrics` of a run for Prometheus: the last batch of each query as gauges, sums as
counters.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from moldau.core.pipelines.query_progress import QueryProgress
from moldau.protocol.errors import MoldauError

_LABELS = ("pipeline", "query")
_PREFIX = "moldau_pipeline_"


class RunMetrics(Collector):
    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._queries: list[QueryProgress] = []

    def __call__(self, queries: list[QueryProgress]) -> None:
        self._queries = queries

    def collect(self) -> Iterable[Metric]:
        queries = self._queries
        counters: tuple[tuple[str, str, Callable[[QueryProgress], float]], ...] = (
            ("batches", "Micro-batches done.", lambda query: query.batches_total),
            ("rows", "Records and rows read.", lambda query: query.rows_total),
            ("bytes", "Bytes of keys and values read.", lambda query: query.bytes_total),
            (
                "dead_letters",
                "Bad records, and rows that steps mark as bad.",
                lambda query: query.dead_letters_total,
            ),
            ("errors", "Failures of the query.", lambda query: query.state == "failed"),
        )
        gauges: tuple[tuple[str, str, Callable[[QueryProgress], float | None]], ...] = (
            ("running", "1 while the query runs.", lambda query: query.state == "running"),
            ("lag", "Records that are not read yet.", lambda query: query.lag),
            ("last_batch_rows", "Rows of the last batch.", lambda query: query.rows),
            (
                "rows_per_second",
                "Rows per second in the last batch.",
                lambda query: query.rows_per_s,
            ),
            (
                "bytes_per_second",
                "Bytes per second in the last batch.",
                lambda query: query.bytes_per_s,
            ),
            (
                "batch_duration_seconds",
                "Duration of the last batch.",
                lambda query: query.batch_ms / 1000,
            ),
            ("last_batch_timestamp_seconds", "Start of the last batch.", _seconds),
        )
        for name, help_text, value_of in counters:
            counter = CounterMetricFamily(_PREFIX + name, help_text, labels=_LABELS)
            for query in queries:
                counter.add_metric((self._pipeline, query.query), float(value_of(query)))
            yield counter
        yield self._expectations(queries)
        for name, help_text, known_of in gauges:
            gauge = GaugeMetricFamily(_PREFIX + name, help_text, labels=_LABELS)
            for query in queries:
                if (known := known_of(query)) is not None:
                    gauge.add_metric((self._pipeline, query.query), float(known))
            yield gauge

    def _expectations(self, queries: list[QueryProgress]) -> Metric:
        counter = CounterMetricFamily(
            f"{_PREFIX}expectation_failures",
            "Rows that fail an expectation.",
            labels=(*_LABELS, "dataset", "expectation"),
        )
        for query in queries:
            for name, count in query.expectations_total.items():
                dataset, _, expectation = name.partition(".")
                counter.add_metric(
                    (self._pipeline, query.query, dataset, expectation), float(count)
                )
        return counter


def _seconds(query: QueryProgress) -> float | None:
    return datetime.fromisoformat(query.time).timestamp() if query.time else None


@contextmanager
def served_metrics(
    pipeline: str, host: str, port: int | None, report_address: Callable[[str], None]
) -> Iterator[RunMetrics]:
    """Serves metrics within the block. Without a port nothing is served. Raises MoldauError."""
    metrics = RunMetrics(pipeline)
    if port is None:
        yield metrics
        return
    registry = CollectorRegistry()
    registry.register(metrics)
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, OverflowError) as error:
        raise MoldauError(f"/metrics cannot be served at {host}:{port}: {error}") from None
    report_address(f"http://{host}:{server.server_port}/metrics")
    try:
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
