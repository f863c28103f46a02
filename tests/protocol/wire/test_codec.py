"""The contract of the codec beyond plain values: defaults, nulls, tags, versions, limits, errors.
Every test runs with the compiled loops and with their Python twin.
"""

import copy
import gc
import math
import pickle
import sys
from typing import Any

import pytest
from protocol.codec_loops import LOOPS

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.log_records.consumer_group_member_metadata import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from moldau.protocol.log_records.partition_change_record import PartitionChangeRecord
from moldau.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
)
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_commit import OffsetCommitRequest
from moldau.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.protocol.messages.request_header import RequestHeader
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from moldau.protocol.wire import codec
from moldau.protocol.wire.primitives import EncodingError
from moldau.types import Uuid


@pytest.fixture(params=LOOPS)
def loops(request: pytest.FixtureRequest) -> Any:
    return LOOPS[request.param]


def produce(records: Any) -> ProduceRequest:
    parts = [PartitionProduceData(index=3, records=records)]
    return ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=parts)])


# ------------------------------------------------------------------------------------ the wire


def test_a_flexible_message_is_written_as_the_protocol_requires(loops: Any) -> None:
    expected = bytes.fromhex("00 ffff 00000000 02 0274 02 00000003 03 6869 00 00 00")
    assert loops.encode(produce(b"hi"), 9) == expected


def test_an_old_message_has_wide_lengths_and_no_tags(loops: Any) -> None:
    expected = bytes.fromhex("ffff ffff 00000000 00000001 0001 74 00000001 00000003 00000002 6869")
    assert loops.encode(produce(b"hi"), 8) == expected


def test_the_client_id_of_a_flexible_header_is_not_compact(loops: Any) -> None:
    header = RequestHeader(
        request_api_key=18, request_api_version=3, correlation_id=7, client_id="me"
    )
    assert loops.encode(header, 2) == bytes.fromhex("0012 0003 00000007 0002 6d65 00")
    assert loops.decode(RequestHeader, 2, loops.encode(header, 2)) == header


def test_nan_and_the_infinities_are_kept(loops: Any) -> None:
    for number in (math.nan, math.inf, -math.inf, -0.0):
        entry = AlterClientQuotasRequestEntryData(ops=[OpData(key="k", value=number)])
        wire = loops.encode(AlterClientQuotasRequest(entries=[entry]), 1)
        back = loops.decode(AlterClientQuotasRequest, 1, wire).entries[0].ops[0].value
        assert math.copysign(1, back) == math.copysign(1, number)
        assert back == number or math.isnan(back) == math.isnan(number)


def test_any_byte_but_zero_is_true(loops: Any) -> None:
    wire = loops.encode(MetadataRequest(topics=None, allow_auto_topic_creation=True), 4)
    assert wire.endswith(b"\x01")
    assert loops.decode(MetadataRequest, 4, wire[:-1] + b"\x07").allow_auto_topic_creation is True


# ------------------------------------------------------------------------------------ defaults


def test_fields_of_other_versions_are_read_as_their_defaults(loops: Any) -> None:
    back = loops.decode(FetchRequest, 4, loops.encode(FetchRequest(max_wait_ms=5), 4))
    assert (back.session_epoch, back.rack_id, back.cluster_id) == (-1, "", None)
    assert back.replica_state == ReplicaState(replica_id=-1, replica_epoch=-1)
    assert back.forgotten_topics_data == []


def test_a_json_null_default_is_a_new_structure_as_in_the_original(loops: Any) -> None:
    """The facts give `default: null` for this field, which the original generator reads as "not
    given".
    """
    assert ConsumerGroupMemberMetadataValue().classic_member_metadata == ClassicMemberMetadata()
    null = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    # A tagged null differs from its default, so it is written: tag 0, one byte, zero.
    assert loops.encode(null, 0).endswith(bytes.fromhex("01 00 01 00"))
    back = loops.decode(ConsumerGroupMemberMetadataValue, 0, loops.encode(null, 0))
    assert back.classic_member_metadata is None


def test_default_lists_are_never_shared(loops: Any) -> None:
    wire = loops.encode(FetchRequest(), 4)
    first, second = loops.decode(FetchRequest, 4, wire), loops.decode(FetchRequest, 4, wire)
    first.forgotten_topics_data.append(1)
    assert second.forgotten_topics_data == []
    assert FetchRequest().topics is not FetchRequest().topics


def test_a_shared_default_structure_cannot_be_changed(loops: Any) -> None:
    partition = PartitionData()
    with pytest.raises(AttributeError, match="assign a new one to set leader_id"):
        partition.current_leader.leader_id = 5
    assert copy.deepcopy(partition) == partition
    assert partition.current_leader.leader_id == -1
    wire = loops.encode(FetchResponse(), 12)
    assert loops.decode(FetchResponse, 12, wire) == FetchResponse()


def test_messages_can_be_copied_and_pickled(loops: Any) -> None:
    partition = PartitionData(partition_index=7, aborted_transactions=None)
    wire = loops.encode(ProduceResponse(), 10)
    for message in (partition, loops.decode(ProduceResponse, 10, wire)):
        for twin in (copy.copy(message), pickle.loads(pickle.dumps(message))):
            assert twin == message
            assert twin is not message
    again = pickle.loads(pickle.dumps(partition))
    assert again.current_leader is partition.current_leader


# ------------------------------------------------------------------------------------ null


@pytest.mark.parametrize(("version", "wire"), [(1, "ffffffff"), (9, "00 01 01 01 00")])
def test_null_is_distinct_from_empty(loops: Any, version: int, wire: str) -> None:
    message = MetadataRequest(
        topics=None,
        include_topic_authorized_operations=version >= 8,
        allow_auto_topic_creation=True,
    )
    if version >= 8:
        message.include_cluster_authorized_operations = True
    assert loops.encode(message, version) == bytes.fromhex(wire)
    assert loops.decode(MetadataRequest, version, bytes.fromhex(wire)).topics is None


def test_null_is_refused_where_it_is_not_allowed(loops: Any) -> None:
    with pytest.raises(EncodingError, match="MetadataRequest v0: topics: null is not allowed"):
        loops.encode(MetadataRequest(topics=None), 0)
    with pytest.raises(MalformedRequestError, match="MetadataRequest v0: topics: null"):
        loops.decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    with pytest.raises(MalformedRequestError, match="mechanism: null is not allowed"):
        loops.decode(SaslHandshakeRequest, 1, b"\xff\xff")


def test_a_null_structure_is_one_byte(loops: Any) -> None:
    message = DescribeTopicPartitionsRequest(response_partition_limit=1)
    assert loops.encode(message, 0) == bytes.fromhex("01 00000001 ff 00")
    message.cursor = DescribeTopicPartitionsRequestCursor(topic_name="t", partition_index=2)
    wire = loops.encode(message, 0)
    assert wire == bytes.fromhex("01 00000001 01 0274 00000002 00 00")
    assert loops.decode(DescribeTopicPartitionsRequest, 0, wire) == message


# ------------------------------------------------------------------------------------ tags


def test_tagged_fields_are_written_in_tag_order_and_only_if_set(loops: Any) -> None:
    change = PartitionChangeRecord(partition_id=1, topic_id=Uuid(bytes(16)), leader=4, isr=[])
    wire = loops.encode(change, 0)
    assert wire == bytes.fromhex("00000001" + "00" * 16 + "02 00 01 01 01 04 00000004")
    assert loops.decode(PartitionChangeRecord, 0, wire) == change


def test_unknown_tags_are_skipped_and_not_kept(loops: Any) -> None:
    message = FetchRequest(cluster_id="c")
    wire = loops.encode(message, 12)
    assert wire.endswith(bytes.fromhex("01 00 02 0263"))
    longer = wire[:-5] + bytes.fromhex("03 00 02 0263 63 03 616263 9f8d06 00")
    assert loops.decode(FetchRequest, 12, longer) == message
    assert loops.encode(loops.decode(FetchRequest, 12, longer), 12) == wire


@pytest.mark.parametrize(
    ("tags", "problem"),
    [
        ("02 63 00 63 00", "tag 99 after tag 99"),
        ("02 63 00 62 00", "tag 98 after tag 99"),
        ("02 00 02 0263 00 02 0263", "tag 0 after tag 0"),
        ("01 63 05 00", "needs 5 bytes, 1 are left"),
        ("01 00 03 0263 00", "its size is not the 3 bytes announced"),
        ("01 01 01 00", "tag 1 does not belong to this version"),
        ("ffffffff7f", "31 bits"),
        ("ffffffffff01", "5 bytes"),
    ],
)
def test_wrong_tags_are_refused(loops: Any, tags: str, problem: str) -> None:
    wire = loops.encode(FetchRequest(), 12)[:-1] + bytes.fromhex(tags)
    with pytest.raises(MalformedRequestError, match=problem):
        loops.decode(FetchRequest, 12, wire)


def test_more_unknown_tags_than_the_cap_are_refused(loops: Any) -> None:
    body: bytes = loops.encode(FetchRequest(), 12)[:-1]

    def with_tags(count: int) -> bytes:
        return body + bytes([count]) + b"".join(bytes([tag, 0]) for tag in range(9, 9 + count))

    assert loops.decode(FetchRequest, 12, with_tags(64)) == FetchRequest()
    with pytest.raises(MalformedRequestError, match="more than 64 unknown tags"):
        loops.decode(FetchRequest, 12, with_tags(65))


def test_a_long_tagged_field_has_a_long_size(loops: Any) -> None:
    message = FetchRequest(cluster_id="c" * 300)
    wire = loops.encode(message, 12)
    assert wire.endswith(bytes.fromhex("01 00 ae02 ad02") + b"c" * 300)
    assert loops.decode(FetchRequest, 12, wire) == message


# ------------------------------------------------------------------------------------ versions


def test_an_unknown_version_of_a_message_is_refused(loops: Any) -> None:
    for version in (-1, 2, 14, 1 << 14):
        with pytest.raises(KafkaError, match=r"ProduceRequest has no version") as caught:
            loops.encode(ProduceRequest(), version)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(KafkaError, match=r"known: 3-13"):
            loops.decode(ProduceRequest, version, b"")


@pytest.mark.parametrize("value", [None, 5, PartitionData()])
def test_an_object_that_is_not_a_message_is_reported(loops: Any, value: Any) -> None:
    name = type(value).__name__
    with pytest.raises(TypeError, match=f"{name} is not a message"):
        loops.encode(value, 12)
    with pytest.raises(TypeError, match=f"{name} is not a message"):
        loops.decode(type(value), 12, b"")


def test_a_removed_message_has_no_version(loops: Any) -> None:
    with pytest.raises(KafkaError, match="LeaderAndIsrRequest has no version 0"):
        loops.encode(LeaderAndIsrRequest(), 0)


def test_a_set_field_that_the_version_cannot_carry_is_refused(loops: Any) -> None:
    """`group_instance_id` is not ignorable: dropping it would change the meaning of the request."""
    message = HeartbeatRequest(group_id="g", member_id="m", group_instance_id="i")
    with pytest.raises(KafkaError, match="v2 cannot carry group_instance_id") as caught:
        loops.encode(message, 2)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert loops.decode(HeartbeatRequest, 3, loops.encode(message, 3)) == message


def test_an_ignorable_field_is_dropped(loops: Any) -> None:
    message = FetchRequest(rack_id="r", cluster_id="c")
    back = loops.decode(FetchRequest, 4, loops.encode(message, 4))
    assert (back.rack_id, back.cluster_id) == ("", None)


def test_a_structure_that_the_version_cannot_carry_must_be_at_its_defaults(loops: Any) -> None:
    assert loops.encode(FetchRequest(replica_state=ReplicaState()), 12)
    with pytest.raises(KafkaError, match="replica_state"):
        loops.encode(FetchRequest(replica_state=ReplicaState(replica_id=1)), 12)


# ------------------------------------------------------------------------------------ writing


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (ProduceRequest(acks=1 << 15), "acks: 32768 is out of range -32768..32767"),
        (ProduceRequest(timeout_ms=-(1 << 31) - 1), "timeout_ms: -2147483649 is out of range"),
        (ProduceRequest(timeout_ms=1 << 80), "timeout_ms: 1208925819614629174706176 is out of"),
        (ProduceRequest(acks=1.5), "acks: needs an int, got float"),  # type: ignore[arg-type]
        (ProduceRequest(acks=None), "acks: null is not allowed"),  # type: ignore[arg-type]
        (ProduceRequest(transactional_id="x" * 32768), "transactional_id: string of 32768 bytes"),
        (ProduceRequest(transactional_id="\ud800"), "transactional_id: not UTF-8"),
        (ProduceRequest(transactional_id=b"x"), "needs a str, got bytes"),  # type: ignore[arg-type]
        (ProduceRequest(topic_data=[None]), "topic_data: null"),  # type: ignore[list-item]
        (ProduceRequest(topic_data={}), "needs a list, got dict"),  # type: ignore[arg-type]
        (ProduceRequest(topic_data=[3]), "TopicProduceData: got int"),  # type: ignore[list-item]
        (produce("text"), "records: needs bytes, got str"),
        (produce([b"ok", 3]), "records: needs bytes, got int"),
    ],
)
def test_a_value_without_a_wire_form_is_refused(
    loops: Any, message: ProduceRequest, problem: str
) -> None:
    with pytest.raises(EncodingError, match=problem):
        loops.encode(message, 9)


def test_wrong_uuids_bools_and_floats_are_refused(loops: Any) -> None:
    topic: Any = MetadataRequestTopic(topic_id=Uuid(b"short"))
    with pytest.raises(EncodingError, match="topic_id: needs 16 bytes"):
        loops.encode(MetadataRequest(topics=[topic]), 12)
    flag: Any = 1
    with pytest.raises(EncodingError, match="needs a bool, got int"):
        loops.encode(MetadataRequest(topics=[], allow_auto_topic_creation=flag), 12)
    number: Any = "1"
    entry = AlterClientQuotasRequestEntryData(ops=[OpData(value=number)])
    with pytest.raises(EncodingError, match="value: needs a float, got str"):
        loops.encode(AlterClientQuotasRequest(entries=[entry]), 1)


def test_a_deleted_attribute_is_an_error_and_not_a_crash(loops: Any) -> None:
    message = ProduceRequest()
    del message.topic_data
    with pytest.raises(EncodingError, match="topic_data: was deleted"):
        loops.encode(message, 9)


def test_enums_and_tuples_are_written_like_numbers_and_lists(loops: Any) -> None:
    no_keys: Any = ()
    message = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=no_keys)
    assert loops.encode(message, 0) == bytes.fromhex("0023 00000000")


@pytest.mark.parametrize(
    "records", [b"abcd", bytearray(b"abcd"), memoryview(b"abcd"), [b"ab", memoryview(b"cd")]]
)
def test_records_may_be_any_bytes_or_several(loops: Any, records: Any) -> None:
    assert loops.encode(produce(records), 9) == loops.encode(produce(b"abcd"), 9)


def test_long_records_are_not_copied_into_chunks(loops: Any) -> None:
    long, other = bytes(100_000), memoryview(bytearray(50_000))
    chunks = loops.encode_chunks(produce([long, b"short", other]), 9)
    assert any(chunk is long for chunk in chunks)
    shared = next(chunk for chunk in chunks if isinstance(chunk, memoryview))
    other[0] = 7
    assert shared[0] == 7
    assert b"".join(chunks) == loops.encode(produce([long, b"short", other]), 9)


def test_an_empty_message_is_one_empty_chunk(loops: Any) -> None:
    assert loops.encode_chunks(ApiVersionsRequest(), 0) == [b""]
    assert loops.decode(ApiVersionsRequest, 0, b"") == ApiVersionsRequest()


# ------------------------------------------------------------------------------------ reading


def test_records_are_a_view_of_the_input_and_bytes_are_a_copy(loops: Any) -> None:
    wire = bytearray(loops.encode(produce(b"hello"), 9))
    records = loops.decode(ProduceRequest, 9, wire).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    wire[wire.index(b"hello")] = ord("j")
    assert bytes(records) == b"jello"
    token = bytearray(loops.encode(SaslAuthenticateRequest(auth_bytes=b"secret"), 2))
    assert type(loops.decode(SaslAuthenticateRequest, 2, token).auth_bytes) is bytes


def test_any_kind_of_buffer_can_be_read(loops: Any) -> None:
    message = produce(b"hello")
    wire = loops.encode(message, 9)
    for buffer in (wire, bytearray(wire), memoryview(wire), memoryview(b"xx" + wire + b"y")[2:-1]):
        assert loops.decode(ProduceRequest, 9, buffer) == message


def test_the_whole_buffer_must_be_the_message(loops: Any) -> None:
    wire = loops.encode(produce(b"hello"), 9)
    with pytest.raises(MalformedRequestError, match="ProduceRequest v9: 2 bytes after the end"):
        loops.decode(ProduceRequest, 9, wire + b"xx")
    assert loops.decode_prefix(ProduceRequest, 9, wire + b"xx")[1] == len(wire)
    for offset in (-1, len(wire) + 1):
        with pytest.raises(MalformedRequestError, match="outside the input"):
            loops.decode_prefix(ProduceRequest, 9, wire, offset)


@pytest.mark.parametrize(
    ("wire", "problem"),
    [
        ("ffff 0001 00000000 7fffffff", "2147483647 elements cannot fit in 0 bytes"),
        ("ffff 0001 00000000 ffffffff", "null is not allowed"),
        ("ffff 0001 00000000 fffffffe", "negative length -2"),
        ("ffff 0001 00000000 00000001 0001 ff 00000000", "name: not UTF-8"),
        ("ffff 0001 00000000 00000001 0003 eda080 00000000", "name: not UTF-8"),
        ("ffff 0001 00000000 00000001 8000", "needs|cannot fit|negative"),
        ("fffe", "transactional_id: negative length -2"),
        ("0005 61", "transactional_id: needs 5 bytes, 1 are left"),
        ("ff", "transactional_id: needs 2 bytes, 1 are left"),
    ],
)
def test_broken_bytes_raise_a_malformed_request_error(loops: Any, wire: str, problem: str) -> None:
    with pytest.raises(MalformedRequestError, match=problem):
        loops.decode(ProduceRequest, 8, bytes.fromhex(wire))


def test_a_compact_string_is_no_longer_than_a_plain_one(loops: Any) -> None:
    wire = bytes.fromhex("818002") + b"x" * 32768
    with pytest.raises(MalformedRequestError, match="string of 32768 bytes"):
        loops.decode(ProduceRequest, 9, wire)


def test_elements_are_limited_by_a_budget_that_the_caller_can_raise(loops: Any) -> None:
    many = codec.ELEMENT_BUDGET + 1
    message = MetadataRequest(topics=[])
    wire = bytes(4)
    assert loops.encode(message, 0) == wire
    wire = many.to_bytes(4, "big") + bytes(2) * many
    with pytest.raises(MalformedRequestError, match="more than 100000 elements in one message"):
        loops.decode(MetadataRequest, 0, wire)
    back = loops.decode(MetadataRequest, 0, wire, budget=codec.TRUSTED_ELEMENT_BUDGET)
    assert len(back.topics) == many


def test_the_budget_counts_all_arrays_of_a_message_together(loops: Any) -> None:
    topic = TopicProduceData(partition_data=[PartitionProduceData()] * 3)
    wire = loops.encode(ProduceRequest(topic_data=[topic] * 2), 9)
    assert loops.decode(ProduceRequest, 9, wire, budget=8)
    with pytest.raises(MalformedRequestError, match="more than 7 elements"):
        loops.decode(ProduceRequest, 9, wire, budget=7)


def test_an_encoded_message_has_a_budget_too(loops: Any) -> None:
    topic = TopicProduceData(partition_data=[PartitionProduceData()] * 3)
    message = ProduceRequest(topic_data=[topic] * 2)
    assert loops.encode_chunks(message, 9, budget=8) == loops.encode_chunks(message, 9)
    with pytest.raises(codec.MessageTooLargeError, match="more than 7 elements"):
        loops.encode_chunks(message, 9, budget=7)


def test_a_long_text_counts_as_several_elements_when_it_is_written(loops: Any) -> None:
    message = MetadataRequest(topics=[MetadataRequestTopic(name="t" * 25_600)] * 2)
    assert b"".join(loops.encode_chunks(message, 9, budget=202)) == loops.encode(message, 9)
    with pytest.raises(codec.MessageTooLargeError, match="more than 201 elements"):
        loops.encode_chunks(message, 9, budget=201)


def test_a_long_message_is_written_in_several_chunks(loops: Any) -> None:
    message = MetadataRequest(topics=[MetadataRequestTopic(name="t" * 25_600)] * 100)
    assert b"".join(loops.encode_chunks(message, 9)) == loops.encode(message, 9)


def test_decoded_messages_are_freed_without_the_cycle_collector(loops: Any) -> None:
    """Decoded messages are hidden from the collector, so reference counting must suffice."""
    wire = loops.encode(produce(b"hello"), 9)
    gc.disable()
    try:
        references = sys.getrefcount(wire)
        message = loops.decode(ProduceRequest, 9, wire)
        assert sys.getrefcount(wire) > references
        del message
        assert sys.getrefcount(wire) == references
    finally:
        gc.enable()


# ------------------------------------------------------------------------------------ the objects


def test_messages_are_compared_by_value_and_cannot_be_keys() -> None:
    assert produce(b"a") == produce(memoryview(b"a"))
    assert produce(b"a") != produce(b"b")
    assert LeaderIdAndEpoch() != ReplicaState()
    with pytest.raises(TypeError, match="unhashable"):
        hash(ProduceRequest())


def test_an_attribute_that_no_version_has_is_an_error() -> None:
    message: Any = OffsetCommitRequest()
    with pytest.raises(AttributeError):
        message.generation = 3


def test_repr_hides_secrets_and_abbreviates_long_bytes() -> None:
    assert repr(SaslAuthenticateRequest(auth_bytes=b"hunter2")) == (
        "SaslAuthenticateRequest(auth_bytes=***)"
    )
    assert "records=b'hi'" in repr(produce(memoryview(b"hi")))
    assert "records=<5000 bytes>" in repr(produce(bytes(5000)))
