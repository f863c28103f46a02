"""The garbage collection of Spark's Python processes after a task."""

import gc
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from moldau.spark.runtime.worker_process import freeze_garbage


@pytest.mark.spark
def test_loaded_modules_are_frozen_once(session: Any) -> None:
    # Nested, so that it is pickled by value: Spark's processes cannot import tests.
    def frozen_twice(batches: Iterable[Any]) -> Iterator[Any]:
        import gc

        import pyarrow as pa

        from moldau.spark.runtime.worker_process import freeze_garbage

        for _ in batches:
            freeze_garbage()
            once = gc.get_freeze_count()
            freeze_garbage()
            yield pa.RecordBatch.from_pydict({"once": [once], "twice": [gc.get_freeze_count()]})

    rows = session.range(1).mapInArrow(frozen_twice, "once bigint, twice bigint").collect()
    assert rows[0].once > 0
    assert rows[0].twice == rows[0].once


def test_a_process_that_is_not_a_task_keeps_its_garbage_collector() -> None:
    freeze_garbage()
    assert gc.get_freeze_count() == 0
