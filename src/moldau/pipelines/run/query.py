"""One query of a run: starts it, restarts it if Spark gave up too early, and stops it between
batches.
"""

import json
import threading
from typing import Any

from moldau.core.pipelines.graph import Pipeline
from moldau.pipelines.compile.lookups import Lookups
from moldau.pipelines.compile.queries import Query
from moldau.pipelines.run.micro_batch import BatchWork, StoppedError
from moldau.pipelines.run.progress import Progress
from moldau.spark.runtime.recognised_errors import is_raised, is_slow_python_start
from moldau.spark.runtime.spark_errors import short_text

_CHECK_EVERY_S = 0.25
_STOP_PATIENCE_S = 600.0
_STARTS_MAX = 10


class QueryRun:
    def __init__(
        self, pipeline: Pipeline, query: Query, frame: Any, lookups: Lookups, checkpoint: str
    ) -> None:
        self.query = query
        self._pipeline = pipeline
        self._frame = frame
        self._lookups = lookups
        self._checkpoint = checkpoint
        self._is_once = False
        self._starts = 0

    def start(self, *, once: bool) -> None:
        self._is_once = once
        self._starts += 1
        trigger = self._pipeline.trigger
        self._work = BatchWork(self._pipeline, self.query, self._lookups, self._checkpoint)
        writer = (
            self._frame.writeStream.queryName(f"{self._pipeline.name}.{self.query.name}")
            .option("checkpointLocation", self._checkpoint)
            .outputMode(self.query.output_mode)
            .foreachBatch(self._work)
        )
        if once or trigger.available_now:
            writer = writer.trigger(availableNow=True)
        elif trigger.every_ms:
            writer = writer.trigger(processingTime=f"{trigger.every_ms} milliseconds")
        self._stream = writer.start()
        self.progress = Progress(self.query, self._stream, self._work.counts_up_to)

    @property
    def is_active(self) -> bool:
        return bool(self._stream.isActive)

    @property
    def failure(self) -> BaseException | None:
        failure: BaseException | None = None if self.is_active else self._stream.exception()
        return failure

    def restart(self) -> bool:
        """Starts the query again if Spark gave up because Python was slow to start. Nothing was
        written by then, or the targets recognise the batch.
        """
        if not is_slow_python_start(self.failure) or self._starts >= _STARTS_MAX:
            return False
        self._work.close()
        self.start(once=self._is_once)
        return True

    def request_stop(self) -> None:
        """Requests that no further batch is started."""
        self._work.stop()

    def stop(self) -> str | None:
        """Stops after the current batch. Returns the error of stopping, if there was one."""
        self._wait_for_batch()
        problem = None
        try:
            self._stream.stop()
        except Exception as error:  # noqa: BLE001 - the query ends in any case
            if not is_raised(StoppedError, error):
                problem = short_text(error)
        self._work.close()
        return problem

    def _wait_for_batch(self) -> None:
        pause = threading.Event()
        for _ in range(round(_STOP_PATIENCE_S / _CHECK_EVERY_S)):
            if not self.is_active or not (self._work.is_busy or self._is_unfinished()):
                return
            pause.wait(_CHECK_EVERY_S)

    def _is_unfinished(self) -> bool:
        """Whether Spark has not yet recorded the end of the batch."""
        if self._work.last_done is None:
            return False
        last = self._stream.lastProgress
        return last is None or json.loads(last.json)["batchId"] < self._work.last_done
