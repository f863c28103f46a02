"""Data frames and tables of every library are sent without being converted first."""

from datetime import UTC, datetime
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from client.clusters import fresh_topic
from client.produced import PATIENCE_S, producer_of, stored

from moldau.errors import ClientError
from moldau.protocol.errors import MoldauError
from moldau.testing import ThreadBroker

KEYS = ["a", None, "ключ"]
VALUES = ["1", "two", None]
BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 998_000, tzinfo=UTC)
TIMES_MS = [1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_002]


def data_frames() -> dict[str, Any]:
    columns = {"key": KEYS, "value": VALUES, "beside": [1, 2, 3], "partition": [1, 1, 1]}
    with_times = {**columns, "timestamp": pd.to_datetime(TIMES_MS, unit="ms", utc=True)}
    polars = pl.DataFrame({**columns, "timestamp": TIMES_MS}).with_columns(
        pl.from_epoch("timestamp", time_unit="ms")
    )
    pandas = pd.DataFrame(with_times, index=[7, 8, 9])
    return {
        "pandas": pandas,
        "pandas with arrow types": pandas.convert_dtypes(dtype_backend="pyarrow"),
        "pandas with string types": pandas.astype({"key": "string", "value": "string"}),
        "pandas with keys as its index": pandas.set_index("key"),
        "pandas with two levels": pandas.set_index(["beside", "key"]),
        "polars": polars,
        "polars in chunks": pl.concat([polars[:1], polars[1:]], rechunk=False),
        "polars with categories": polars.with_columns(pl.col("key").cast(pl.Categorical)),
        "polars with bytes": polars.with_columns(pl.col("value").cast(pl.Binary)),
        "a stream of Arrow": pa.Table.from_pandas(pandas).to_reader(),
    }


@pytest.mark.parametrize("kind", data_frames())
def test_data_frames_are_sent_without_conversion(node: ThreadBroker, kind: str) -> None:
    topic = fresh_topic(node, 2)
    with producer_of(node) as producer:
        sent = producer.send_table(topic, data_frames()[kind]).result(PATIENCE_S)
    assert sum(one.records for one in sent) == len(VALUES)
    found = stored(node, topic)
    assert found[0] == []
    assert [(one.key, one.value, one.timestamp) for one in found[1]] == [
        (b"a", b"1", TIMES_MS[0]),
        (None, b"two", TIMES_MS[1]),
        ("ключ".encode(), None, TIMES_MS[2]),
    ]


def test_headers_of_a_data_frame_are_sent(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 2)
    headers = [[{"key": "from", "value": b"web"}], [], None]
    frame = pl.DataFrame({"key": KEYS, "value": VALUES, "headers": headers})
    with producer_of(node) as producer:
        producer.send_table(topic, frame).result(PATIENCE_S)
    found = [one for rows in stored(node, topic).values() for one in rows]
    assert {one.key: one.headers for one in found} == {
        b"a": (("from", b"web"),),
        None: (),
        "ключ".encode(): (),
    }


def test_data_frames_that_cannot_be_sent_are_an_error_of_one_line(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    wrong: list[tuple[Any, str]] = [
        (pd.DataFrame({"amount": ["a"]}), "no column named value"),
        (pd.DataFrame({"values": ["a"]}), "a column 'values'; did you mean 'value'"),
        (pd.DataFrame({"Value": ["a"]}), "a column 'Value'; did you mean 'value'"),
        (pd.DataFrame({"value": ["a"]}, index=pd.Index(["k"], name="Key")), "a column 'Key'; did"),
        (pl.DataFrame({"value": ["a"], "Key": ["k"]}), "a column 'Key'; did you mean 'key'"),
        (pa.table({"value": ["a"], "KEY": ["k"]}), "a column 'KEY'; did you mean 'key'"),
        (pa.table({"value": ["a"], "TimeStamp": [1]}), "'TimeStamp'; did you mean 'timestamp'"),
        (pd.DataFrame({"value": [b"a", 1]}), "rows of this DataFrame do not fit: .*bytes"),
        (pd.Series(["a"], name="value"), "a Series is not a table"),
        (pl.Series("value", ["a"]), "a Series is not a table; give a pyarrow table"),
        (pl.DataFrame({"value": [1.5]}), "column value is double"),
        (pl.LazyFrame({"value": ["a"]}), r"a LazyFrame has no rows yet: call .collect\(\)"),
        ([b"a"], "a list is not a table"),
        (pl.DataFrame({"value": ["a"], "key": [7]}), "key is int64; it must be binary or text"),
        (pd.DataFrame({"value": ["a"], "ky": ["k"]}), "a column 'ky'; did you mean 'key'"),
        (pd.DataFrame({"value": ["a"], "header": [[]]}), "'header'; did you mean 'headers'"),
        (pd.DataFrame([["a", "b"]], columns=["value", "value"]), "2 columns named value"),
        (pd.DataFrame([["a", 1, 2]], columns=["value", "x", "x"]), "2 columns named x"),
        (pa.table([["k"], ["j"], ["a"]], names=["key", "key", "value"]), "2 columns named key"),
        (pl.DataFrame({"value": ["a"], "partition": [3]}), "no partition 3; it has 1 partition"),
        (pl.DataFrame({"value": ["a"], "partition": [-1]}), "has -1; partitions count from 0"),
        (pa.table({"value": ["a"], "timestamp": [-5]}), "timestamp has -5; times count from 0"),
        (pa.table({"value": ["a"], "timestamp": [BEFORE_1970]}), "timestamp has -2; times count"),
        (pa.table({"value": ["a"], "partition": ["x"]}), "partition is string; it must be int32"),
    ]
    with producer_of(node) as producer:
        for frame, text in wrong:
            with pytest.raises(MoldauError, match=text) as refused:
                producer.send_table(topic, frame)
            assert "\n" not in str(refused.value)
        with pytest.raises(ClientError, match="no partition 3; it has 1 partition"):
            producer.send_table(topic, pl.DataFrame({"value": ["a"]}), partition=3)
    assert stored(node, topic) == {0: []}


def test_a_topic_of_one_partition_takes_rows_that_name_it_or_none(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    beside = pa.table([["a", "b"], [0, None], [1, 2], [3, 4]], names=["value", "partition", *"xx"])
    with producer_of(node) as producer:
        producer.send_table(topic, beside).result(PATIENCE_S)
    assert [one.value for one in stored(node, topic)[0]] == [b"a", b"b"]
