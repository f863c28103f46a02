"""The data source `moldau_http`: polls an address. Spark's offsets number the answers that bring
new rows. See core/connectors/http_polling.py.
"""

import logging
import threading
import zlib
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from moldau.connectors.http.answers import Answer, KeptAnswers, TransientError, request_answer
from moldau.core.connectors.http_polling import (
    HttpOptions,
    PollPosition,
    backoff_ms,
    position_after,
    read_options,
    read_position,
    rows_of,
    write_position,
)
from moldau.core.spark.errors import HttpError, OptionError
from moldau.net.clock import Clock

_log = logging.getLogger(__name__)

SCHEMA = "value binary, url string, poll bigint, row bigint, error string"
_LONG_POLL_MS = 500.0
_BATCH_ROWS = 10_000


class HttpSource(DataSource):
    """`spark.dataSource.register(HttpSource)`, then `spark.readStream.format("moldau_http")`."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._parsed = read_options(self.options)

    @classmethod
    def name(cls) -> str:
        return "moldau_http"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002
        return HttpBatchReader(self._parsed)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802, ARG002
        if not self._parsed.keep:
            raise OptionError("option keep is missing: a folder for answers, beside the checkpoint")
        return HttpStreamReader(self._parsed)


class BodyPartition(InputPartition):
    """Carries the body itself, because tasks may run on machines without the folder."""

    def __init__(self, poll: int, body: bytes) -> None:
        super().__init__(poll)
        self.poll = poll
        self.packed = zlib.compress(body, 1)


class HttpBatchReader(DataSourceReader):
    """Reads the current answer of the address."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        answer = request_answer(self._options, PollPosition())
        return [BodyPartition(1, b"[]" if answer is None else answer.body)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_body(self._options, partition)


class HttpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._answers = KeptAnswers(options.keep)
        self._due_ms = 0.0
        self._failures = 0
        self._is_once = False
        self._is_done = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return write_position(PollPosition())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._is_once = True

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802, ARG002
        before = read_position(start)
        # A run that ended before this batch was planned may have stored the answer.
        after = self._answers.position_of(before.poll + 1)
        if after is None:
            after = self._poll(before) if not self._is_done and self._is_due() else before
        return start if after == before else write_position(after)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        first, last = read_position(start), read_position(end)
        if last.poll and self._answers.position_of(last.poll) not in {None, last}:
            raise HttpError(
                f"answer {last.poll} in {self._options.keep} does not match the checkpoint; "
                "restore both together"
            )
        polls = range(first.poll + 1, last.poll + 1)
        return [BodyPartition(poll, self._answers.body_of(poll)) for poll in polls]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_body(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._answers.forget(read_position(end).poll)

    def _is_due(self) -> bool:
        """Whether the next poll is due. Waits a little for it: otherwise Spark would call again at
        once, ninety times a second.
        """
        left_ms = self._due_ms - Clock().mono_ms()
        if left_ms > 0:
            patience_ms = left_ms if self._is_once else min(left_ms, _LONG_POLL_MS)
            threading.Event().wait(patience_ms / 1000)
        return self._due_ms <= Clock().mono_ms() or self._is_once

    def _poll(self, before: PollPosition) -> PollPosition:
        """Requests an answer and stores it. Raises HttpError."""
        answer = self._answer(before)
        while answer is None and self._failures and self._is_once and self._is_due():
            answer = self._answer(before)
        if self._failures:
            return before
        self._due_ms = Clock().mono_ms() + self._options.every_ms
        after = before
        if answer is not None:
            after = position_after(before, answer.body, self._options, answer.headers)
        if answer is None or after == before:
            self._is_done = self._is_once
            return before
        after = self._answers.keep(after, answer.body)
        if after.cursor != before.cursor:
            # There may be another page.
            self._due_ms = 0.0
        else:
            self._is_done = self._is_once
        return after

    def _answer(self, before: PollPosition) -> Answer | None:
        """None if there is nothing new, or after a transient error, which is counted."""
        try:
            answer = request_answer(self._options, before)
        except TransientError as error:
            self._failures += 1
            if self._failures >= self._options.attempts:
                raise HttpError(f"{error}; {self._failures} times in a row") from None
            _log.warning("%s; retrying", error)
            self._due_ms = Clock().mono_ms() + backoff_ms(self._failures)
            return None
        self._failures = 0
        return answer


def read_body(options: HttpOptions, partition: InputPartition) -> Iterator[Any]:
    import pyarrow as pa

    assert isinstance(partition, BodyPartition)
    schema = pa.schema(
        [
            ("value", pa.binary()),
            ("url", pa.string()),
            ("poll", pa.int64()),
            ("row", pa.int64()),
            ("error", pa.string()),
        ]
    )
    rows = list(rows_of(zlib.decompress(partition.packed), options))
    for start in range(0, len(rows), _BATCH_ROWS):
        part = rows[start : start + _BATCH_ROWS]
        columns = [
            [row.value for row in part],
            [options.url] * len(part),
            [partition.poll] * len(part),
            list(range(start, start + len(part))),
            [row.error for row in part],
        ]
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
