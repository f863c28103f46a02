"""Options of source and sink: Spark's names, and one clear line per error."""

import pytest

from moldau.core.spark.errors import OptionError
from moldau.core.spark.offset_bounds import (
    AtGroup,
    AtOffsets,
    AtTime,
    AtTimes,
    Earliest,
    Latest,
    OffsetBound,
)
from moldau.core.spark.options import (
    Assign,
    Subscribe,
    SubscribePattern,
    schema_problem,
    sink_options,
    source_options,
)
from moldau.types import TopicPartition

BROKER = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
A0 = TopicPartition("a", 0)


def test_names_are_taken_in_any_case_and_settings_lose_their_prefix() -> None:
    found = source_options(
        BROKER | {"SUBSCRIBE": "a, b", "MaxOffsetsPerTrigger": "10", "kafka.client.id": "x"},
        is_stream=True,
    )
    assert found.strategy == Subscribe(("a", "b"))
    assert found.rows_max == 10
    assert found.settings == {
        "bootstrap.servers": "127.0.0.1:9092",
        "client.id": "x",
        "isolation.level": "read_committed",
    }


def test_a_batch_reads_all_records_and_a_stream_only_new_ones() -> None:
    batch = source_options(BROKER | {"subscribe": "a"}, is_stream=False)
    stream = source_options(BROKER | {"subscribe": "a"}, is_stream=True)
    assert (batch.starting, batch.ending) == (Earliest(), Latest())
    assert stream.starting == Latest()


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ({"startingOffsets": "Earliest"}, Earliest()),
        ({"startingOffsets": "group"}, AtGroup()),
        ({"startingOffsets": '{"a": {"0": 4}}'}, AtOffsets({A0: 4}, "startingOffsets")),
        ({"startingTimestamp": "17"}, AtTime(17, "startingTimestamp")),
        (
            {"startingOffsetsByTimestamp": '{"a": {"0": 9}}', "startingOffsets": "latest"},
            AtTimes({A0: 9}, "startingOffsetsByTimestamp"),
        ),
        (
            {"startingTimestamp": "17", "startingOffsetsByTimestamp": '{"a": {"0": 9}}'},
            AtTime(17, "startingTimestamp"),
        ),
    ],
)
def test_offset_bounds_have_sparks_priority(given: dict[str, str], bound: OffsetBound) -> None:
    found = source_options(BROKER | {"subscribe": "a"} | given, is_stream=True)
    assert found.starting == bound


def test_other_ways_to_choose() -> None:
    pattern = source_options(BROKER | {"subscribePattern": "a.*"}, is_stream=True)
    assigned = source_options(BROKER | {"assign": '{"a": [0]}'}, is_stream=True)
    assert pattern.strategy == SubscribePattern("a.*")
    assert assigned.strategy == Assign(frozenset({A0}))


@pytest.mark.parametrize(("text", "ms"), [("90s", 90_000), ("15m", 900_000), ("250", 250)])
def test_durations(text: str, ms: int) -> None:
    given = BROKER | {"subscribe": "a", "maxTriggerDelay": text}
    assert source_options(given, is_stream=True).delay_ms_max == ms


WRONG_IN_STREAMS = [
    ({"subscribe": "a", "startingOfsets": "latest"}, "did you mean startingOffsets"),
    ({"subscribe": "a", "bootstrap.servers": "x:1"}, "did you mean kafka.bootstrap.servers"),
    ({}, "one of subscribe, subscribePattern and assign is needed; none is given"),
    ({"subscribe": "a", "assign": "{}"}, "subscribe and assign are given"),
    ({"subscribe": " , "}, "subscribe is empty"),
    ({"subscribePattern": "a("}, "is not a pattern"),
    ({"subscribe": "a", "startingOffsets": "earlist"}, "did you mean earliest"),
    ({"subscribe": "a", "endingOffsets": "latest"}, "a stream has no end"),
    ({"subscribe": "a", "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger=0"),
    ({"subscribe": "a", "minPartitions": "x"}, "minPartitions=x"),
    ({"subscribe": "a", "failOnDataLoss": "yes"}, "neither true nor false"),
    ({"subscribe": "a", "maxTriggerDelay": "soon"}, "not a duration"),
    ({"subscribe": "a", "startingTimestamp": "today"}, "milliseconds since 1970"),
    ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "x"}, "error or latest"),
    ({"subscribe": "a", "kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
    (
        {"subscribe": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"},
        "is more than maxOffsetsPerTrigger=3",
    ),
]


@pytest.mark.parametrize(("given", "message"), WRONG_IN_STREAMS)
def test_wrong_options_of_a_stream(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        source_options(BROKER | given, is_stream=True)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "latest"}, "reads nothing"),
        ({"endingOffsets": "earliest"}, "reads nothing"),
        ({"endingOffsets": "group"}, "not supported"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "a-0 has -1"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "a-0 has -2"),
    ],
)
def test_wrong_options_of_a_batch(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        source_options(BROKER | {"subscribe": "a"} | given, is_stream=False)
    assert message in str(caught.value)


def test_without_a_broker_the_error_names_the_missing_option() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        source_options({"subscribe": "a"}, is_stream=True)


def test_the_sinks_options() -> None:
    found = sink_options(BROKER | {"topic": "a", "checkpointLocation": "/x", "kafka.acks": "1"})
    assert found.topic == "a"
    assert found.settings == {"bootstrap.servers": "127.0.0.1:9092", "acks": "1"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "a"}, "an option for reading, not for writing; write topic"),
        ({"topic": " "}, "topic is empty"),
        ({"delivery": "exactly_once"}, "ExactlyOnceSink"),
        ({"delivery": "twice"}, "at_least_once or exactly_once"),
        ({"topics": "a"}, "did you mean topic"),
        ({"kafka.value.serializer": "x"}, "cast them in the query"),
    ],
)
def test_wrong_options_of_the_sink(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        sink_options(BROKER | given)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "given", [{}, {"path": "/warehouse/t"}, BROKER | {"provider": "moldau", "subscribe": "a"}]
)
def test_a_table_that_lost_its_options_is_refused_with_a_hint(given: dict[str, str]) -> None:
    for read in (lambda: source_options(given, is_stream=False), lambda: sink_options(given)):
        with pytest.raises(OptionError, match="CREATE TEMPORARY VIEW"):
            read()


def test_topic_names_are_stripped() -> None:
    assert sink_options(BROKER | {"topic": " a "}).topic == "a"


def test_options_of_sparks_own_source_are_ignored() -> None:
    given = {
        "kafkaConsumer.pollTimeoutMs": "1",
        "fetchOffset.numRetries": "1",
        "fetchOffset.retryIntervalMs": "1",
        "partition.metadata.cache.ttl.ms": "-1",
    }
    plain = BROKER | {"subscribe": "a"}
    with_them = source_options(plain | given, is_stream=True)
    assert with_them == source_options(plain, is_stream=True)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"key": "BINARY"}, None),
        ({"value": "STRING", "key": "BINARY"}, None),
        ({"valeu": "STRING"}, "there is no column 'valeu'; did you mean value?"),
        ({"key": "STRING"}, "column key is BINARY, not STRING"),
        ({}, "no column is chosen; choose from key, value"),
    ],
)
def test_a_schema_chooses_among_the_columns(columns: dict[str, str], reason: str | None) -> None:
    found = schema_problem(columns, {"key": "BINARY", "value": "STRING"})
    assert (found or "").startswith(reason or "")
    assert (found is None) == (reason is None)
