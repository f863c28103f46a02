"""What a Python process of Spark's does when a task is done."""

import gc
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from moldau.spark.runtime.worker_process import freeze_garbage


@pytest.mark.spark
def test_what_is_loaded_is_left_out_of_collections_once(session: Any) -> None:
    # Inside, so that it goes along: Spark's processes do not find tests.
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


def test_a_process_that_is_no_task_keeps_its_collector() -> None:
    freeze_garbage()
    assert gc.get_freeze_count() == 0
