"""Stored records have Apache Kafka's framing, and unknown ones are refused by name."""

import pytest

from moldau.protocol import log_records
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.log_records.offset_commit import OffsetCommitKey, OffsetCommitValue
from moldau.protocol.log_records.remote_partition_delete_metadata_record import (
    RemotePartitionDeleteMetadataRecord,
)
from moldau.protocol.log_records.topic_record import TopicRecord
from moldau.protocol.records.stored_records import (
    CoordinatorTopic,
    decode_coordinator_key,
    decode_coordinator_value,
    decode_metadata_record,
    encode_coordinator_key,
    encode_coordinator_value,
    encode_metadata_record,
)
from moldau.types import Uuid


def test_a_metadata_record_has_a_frame_of_three_varints() -> None:
    record = TopicRecord(name="t", topic_id=Uuid(bytes(16)))
    wire = encode_metadata_record(record, 0)
    assert wire == bytes.fromhex("01 02 00 0274" + "00" * 16 + "00")
    assert decode_metadata_record(wire) == (record, 0)


def test_remote_log_metadata_has_the_same_frame_and_its_own_types() -> None:
    record = RemotePartitionDeleteMetadataRecord(broker_id=3)
    wire = encode_metadata_record(record, 0)
    found = decode_metadata_record(wire, log_records.remote_log_record_class)
    assert found.message == record


@pytest.mark.parametrize(
    ("wire", "problem"),
    [
        ("02 02 00", "metadata frame version 2"),
        ("01 06 00", "metadata record type 6 is unknown"),
        ("01 02 01", "TopicRecord has no version 1"),
    ],
)
def test_records_of_a_later_release_are_refused_by_name(wire: str, problem: str) -> None:
    with pytest.raises(KafkaError, match=problem) as caught:
        decode_metadata_record(bytes.fromhex(wire))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("wire", ["", "01", "01 02", "ffffffffff", "01 02 00 0574"])
def test_broken_metadata_records_are_malformed(wire: str) -> None:
    with pytest.raises(MalformedRequestError):
        decode_metadata_record(bytes.fromhex(wire))


def test_a_coordinator_key_leads_with_its_type_and_a_value_with_its_version() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9)
    raw_key, raw_value = encode_coordinator_key(key), encode_coordinator_value(value, 3)
    assert raw_key == bytes.fromhex("0001 0001 67 0001 74 00000001")
    assert raw_value[:2] == b"\x00\x03"
    assert decode_coordinator_key(CoordinatorTopic.GROUP, raw_key) == key
    found = decode_coordinator_value(CoordinatorTopic.GROUP, key.API_KEY, raw_value)
    assert found == (value, 3)


def test_each_topic_numbers_its_types_separately() -> None:
    key = log_records.message_class("TransactionLogKey")()
    raw = encode_coordinator_key(key)
    assert decode_coordinator_key(CoordinatorTopic.TRANSACTION, raw) == key
    with pytest.raises(MalformedRequestError):
        decode_coordinator_key(CoordinatorTopic.SHARE, raw)
    with pytest.raises(KafkaError, match="__share_group_state record type 9 is unknown"):
        decode_coordinator_key(CoordinatorTopic.SHARE, b"\x00\x09")
    with pytest.raises(MalformedRequestError, match="has no type"):
        decode_coordinator_key(CoordinatorTopic.SHARE, b"\x00")
