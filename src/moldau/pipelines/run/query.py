"""One query of a run: begun, begun again if Spark was too impatient, and ended between batches."""

import json
import threading
from typing import Any

from moldau.core.pipelines.graph import Pipeline
from moldau.pipelines.compile.lookups import Lookups
from moldau.pipelines.compile.queries import Query
from moldau.pipelines.run.micro_batch import BatchWork, StoppedError
from moldau.pipelines.run.progress import Progress
from moldau.spark.runtime.spark_errors import short_text

_LOOK_S = 0.25
_STOP_PATIENCE_S = 600.0
# Spark gives Python ten seconds to start, which is too little on a machine that is very busy. There
# is no setting for it; nothing was done yet, or what was done is recognised.
_IMPATIENT = "Python worker failed to connect back"
_BEGINNINGS_MAX = 10


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
        self._beginnings = 0

    def begin(self, *, once: bool) -> None:
        self._is_once = once
        self._beginnings += 1
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
        found: BaseException | None = None if self.is_active else self._stream.exception()
        return found

    def begins_again(self) -> bool:
        """After a failure that is nobody's fault."""
        if _IMPATIENT not in str(self.failure) or self._beginnings >= _BEGINNINGS_MAX:
            return False
        self._work.close()
        self.begin(once=self._is_once)
        return True

    def ask_to_end(self) -> None:
        """No batch begins from now on."""
        self._work.stop()

    def end(self) -> str | None:
        """After the batch that is under way. Gives what went wrong with that."""
        self._wait_between_batches()
        problem = None
        try:
            self._stream.stop()
        except Exception as error:  # noqa: BLE001 - it ends in any case
            if StoppedError.__name__ not in str(error):
                problem = short_text(error)
        self._work.close()
        return problem

    def _wait_between_batches(self) -> None:
        pause = threading.Event()
        for _ in range(round(_STOP_PATIENCE_S / _LOOK_S)):
            if not self.is_active or not (self._work.is_busy or self._is_unfinished()):
                return
            pause.wait(_LOOK_S)

    def _is_unfinished(self) -> bool:
        """Spark has still to write down that the batch is done."""
        if self._work.last_done is None:
            return False
        last = self._stream.lastProgress
        return last is None or json.loads(last.json)["batchId"] < self._work.last_done
