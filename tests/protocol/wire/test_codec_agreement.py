"""For every message and version the compiled loops, their Python twin and kio agree to the byte."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from protocol.codec_loops import COMPILED, TWIN
from protocol.codec_values import all_class_versions, all_classes, draw_message, example_message

from moldau.protocol.wire.schema import Message, supported_versions
from protocol import kio_peer

CLASSES = all_classes()
KNOWN_TO_KIO = [
    each
    for each in CLASSES
    if any(kio_peer.kio_class(each, version) for version in supported_versions(each))
]
QUICK = settings(
    deadline=None,
    max_examples=6,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)


def name_of(message_class: type[Message]) -> str:
    return message_class.__name__


def assert_loops_agree(message: Any, version: int) -> bytes:
    """Both loops write the same bytes and read them back to the same message."""
    kind = type(message)
    wire: bytes = COMPILED.encode(message, version)
    assert TWIN.encode(message, version) == wire
    assert b"".join(COMPILED.encode_chunks(message, version)) == wire
    assert b"".join(TWIN.encode_chunks(message, version)) == wire
    assert COMPILED.decode(kind, version, wire) == message
    assert TWIN.decode(kind, version, memoryview(wire)) == message
    assert COMPILED.decode_prefix(kind, version, b"12" + wire + b"3", 2) == (message, len(wire) + 2)
    assert TWIN.decode_prefix(kind, version, b"12" + wire + b"3", 2)[1] == len(wire) + 2
    return wire


@pytest.mark.parametrize("message_class", CLASSES, ids=name_of)
@QUICK
@given(choice=st.data())
def test_both_loops_write_the_same_and_read_it_back(
    message_class: type[Message], choice: st.DataObject
) -> None:
    for version in supported_versions(message_class):
        assert_loops_agree(draw_message(choice.draw, message_class, version), version)


@pytest.mark.parametrize("message_class", CLASSES, ids=name_of)
def test_full_and_default_messages_survive_the_round_trip(message_class: type[Message]) -> None:
    for version in supported_versions(message_class):
        assert_loops_agree(example_message(message_class, version), version)
        assert_loops_agree(message_class(), version)


@pytest.mark.parametrize("message_class", KNOWN_TO_KIO, ids=name_of)
@QUICK
@given(choice=st.data())
def test_kio_reads_and_writes_the_same_bytes(
    message_class: type[Message], choice: st.DataObject
) -> None:
    for version in supported_versions(message_class):
        theirs = kio_peer.kio_class(message_class, version)
        if theirs is None:
            continue
        restriction = kio_peer.restriction_of(message_class, theirs)
        message = draw_message(choice.draw, message_class, version, restriction)
        wire = COMPILED.encode(message, version)
        entity = kio_peer.read(theirs, wire)
        assert kio_peer.to_ours(message_class, entity) == message
        assert kio_peer.write(entity) == wire


def test_kio_has_most_of_our_messages() -> None:
    """Protects the tests above from silently comparing nothing."""
    known = sum(
        kio_peer.kio_class(each, version) is not None for each, version in all_class_versions()
    )
    assert known >= 500
