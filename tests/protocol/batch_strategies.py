"""Generated records and batches, and the two implementations of every record loop."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import strategies as st

from moldau.protocol.errors import KafkaError
from moldau.protocol.records import _record_columns_twin, _records_twin
from moldau.protocol.records.batch_builder import BatchOptions
from moldau.protocol.records.batches import Record
from moldau.protocol.records.compression import Compression
from moldau.types import ProducerEpoch

compiled: ModuleType = pytest.importorskip("moldau.protocol.records._records")
IMPLEMENTATIONS = [
    pytest.param((compiled, compiled), id="compiled"),
    pytest.param((_records_twin, _record_columns_twin), id="twin"),
]

names = st.text(max_size=12)
contents = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(names, contents), max_size=4).map(tuple)
timestamps = st.integers(-1, 2**45) | st.integers(-(2**62), 2**62)


@st.composite
def record_lists(draw: st.DrawFn, max_size: int = 20) -> list[Record]:
    """Records with rising offsets and gaps between them, as compaction leaves them."""
    base_offset = draw(st.integers(0, 2**50))
    count = draw(st.integers(1, max_size))
    found: list[Record] = []
    offset = base_offset
    for _ in range(count):
        found.append(
            Record(offset, draw(timestamps), draw(contents), draw(contents), draw(headers))
        )
        offset += draw(st.integers(1, 3))
    return found


@st.composite
def batch_options(draw: st.DrawFn) -> BatchOptions:
    has_producer = draw(st.booleans())
    return BatchOptions(
        compression=draw(st.sampled_from(Compression)),
        partition_leader_epoch=draw(st.integers(-1, 2**31 - 1)),
        producer_id=draw(st.integers(0, 2**63 - 1)) if has_producer else -1,
        producer_epoch=ProducerEpoch(draw(st.integers(0, 2**15 - 1)) if has_producer else -1),
        base_sequence=draw(st.integers(0, 2**31 - 1)) if has_producer else -1,
        is_transactional=has_producer and draw(st.booleans()),
    )


def simple_records(count: int = 5, timestamp: int = 1_700_000_000_000) -> list[Record]:
    return [
        Record(index, timestamp + index, b"key-%d" % index, b"value-%d" % index * 4)
        for index in range(count)
    ]


def outcome(function: Any, *arguments: Any) -> Any:
    """The result, or the error as a value, so that two implementations can be compared."""
    try:
        return function(*arguments)
    except KafkaError as error:
        return error.code, error.detail
    except (ValueError, OverflowError) as error:
        return type(error), str(error)
