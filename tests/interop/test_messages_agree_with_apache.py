"""Our codec and Apache Kafka's agree byte for byte, both ways, for every message and version."""

import json
import zipfile
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from interop.apache import ApacheOracle, ApacheRefusedError
from interop.facts import (
    WITHOUT_VERSIONS,
    Field,
    MessageFacts,
    Struct,
    all_messages,
    attribute_of,
    json_view,
    live_messages,
)
from interop.message_values import corners, element_class, generated, greatest, least

from moldau.protocol import log_records, messages
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.wire.codec import decode, encode
from moldau.protocol.wire.schema import Message
from moldau.protocol.wire.schema import Struct as OurStruct

pytestmark = pytest.mark.interop
EXAMPLES_PER_VERSION = 25
MUTATIONS_PER_MESSAGE = 40
MESSAGES = live_messages()
each_message = pytest.mark.parametrize("facts", MESSAGES, ids=lambda facts: str(facts.name))


def our_class(facts: MessageFacts) -> type[Message]:
    """Requests, responses and their headers are in another package than records of logs."""
    try:
        return messages.message_class(facts.name)
    except KeyError:
        return log_records.message_class(facts.name)


def try_examples(
    values: st.SearchStrategy[Any], check: Callable[[Any], None], examples_max: int
) -> None:
    """Run a property; a separate function because each message and version has its own strategy."""

    @settings(
        max_examples=examples_max,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(value=values)
    def run(value: Any) -> None:
        check(value)

    run()


def assert_agreement(apache: ApacheOracle, facts: MessageFacts, version: int, message: Any) -> None:
    """Apache reads our bytes, we read Apache's, and the bytes of both are equal."""
    ours = encode(message, version)
    answer = apache.read(facts.name, version, ours)
    assert answer.unread == 0
    assert json.loads(answer.view) == json_view(facts.struct, message, version, for_writing=False)
    assert answer.rewritten == ours
    view = json_view(facts.struct, message, version, for_writing=True)
    theirs = apache.write(facts.name, version, json.dumps(view).encode())
    assert theirs == ours
    assert decode(type(message), version, theirs) == message


def test_every_row_of_the_facts_is_compared() -> None:
    """280 rows: 272 live ones are the parameters of this module, 8 have no version since 4.0."""
    assert len(all_messages()) == 280
    assert {facts.name for facts in all_messages() if not facts.versions} == WITHOUT_VERSIONS
    assert len(MESSAGES) == 280 - len(WITHOUT_VERSIONS)


def test_every_message_of_apache_is_in_the_facts(apache: ApacheOracle) -> None:
    suffix = "JsonConverter.class"
    converters = set()
    for jar in apache.jar_folder.glob("kafka*.jar"):
        with zipfile.ZipFile(jar) as archive:
            names = [name.rpartition("/")[2] for name in archive.namelist()]
        converters |= {name.removesuffix(suffix) for name in names if name.endswith(suffix)}
    # A nested class has a converter of its own, whose name starts with the outer class.
    outer = {name for name in converters if "$" not in name}
    known = {facts.name for facts in MESSAGES}
    assert {name for name in outer if not known & {name, name.removesuffix("Data")}} == set()
    assert len(outer) == len(MESSAGES)


@each_message
def test_the_versions_are_those_of_apache(apache: ApacheOracle, facts: MessageFacts) -> None:
    assert apache.versions(facts.name) == facts.versions


@each_message
def test_generated_values_agree_in_every_version(apache: ApacheOracle, facts: MessageFacts) -> None:
    owner = our_class(facts)
    for version in facts.versions:
        try_examples(
            generated(facts.struct, owner, version),
            partial(assert_agreement, apache, facts, version),
            EXAMPLES_PER_VERSION,
        )


@each_message
def test_corner_values_agree_in_every_version(apache: ApacheOracle, facts: MessageFacts) -> None:
    """Defaults, least and greatest numbers, nulls, empty arrays, long strings and arrays."""
    owner = our_class(facts)
    for version in facts.versions:
        for message in corners(facts.struct, owner, version).values():
            assert_agreement(apache, facts, version, message)


@each_message
def test_unknown_tagged_fields_are_skipped_by_both(
    apache: ApacheOracle, facts: MessageFacts
) -> None:
    owner = our_class(facts)
    for version in facts.versions:
        if version not in facts.flexible:
            continue
        # With all fields at their defaults the message ends in an empty list of tagged fields: a
        # count, then tag, size and content of each.
        message = owner()
        plain = encode(message, version)
        assert plain[-1] == 0
        extended = plain[:-1] + b"\x02" + b"\xe7\x07\x03new" + b"\xe8\x07\x00"
        view = json_view(facts.struct, message, version, for_writing=False)
        assert json.loads(apache.read(facts.name, version, extended).view) == view
        assert decode(owner, version, extended) == message


def absent_fields(
    struct: Struct, owner: type[OurStruct], version: int
) -> list[tuple[Field, Any, dict[str, Any]]]:
    """Every field that the version lacks, with a value: (field, our object, JSON view)."""
    found = []
    for each in struct.fields:
        attribute = attribute_of(owner, each.name)
        if version not in each.versions:
            if each.struct is None and not each.is_array:
                value = greatest(each)
                if value == each.default_value():
                    value = least(each)
                changed = owner(**{attribute: value})
                view = json_view(struct, changed, version, for_writing=True)
                found.append((each, changed, view))
            continue
        if each.struct is None or version in each.tagged:
            continue
        for inner, nested, _ in absent_fields(each.struct, element_class(owner, each), version):
            outer = owner(**{attribute: [nested] if each.is_array else nested})
            view = json_view(struct, outer, version, for_writing=True)
            found.append((inner, outer, view))
    return found


@each_message
def test_fields_a_version_lacks_are_dropped_or_refused_as_apache_does(
    apache: ApacheOracle, facts: MessageFacts
) -> None:
    """Ignorable fields are dropped; the others raise an error."""
    owner = our_class(facts)
    for version in facts.versions:
        for each, message, view in absent_fields(facts.struct, owner, version):
            written = json.dumps(view).encode()
            if each.ignorable:
                assert encode(message, version) == apache.write(facts.name, version, written)
                continue
            with pytest.raises(ApacheRefusedError, match="UnsupportedVersionException"):
                apache.write(facts.name, version, written)
            with pytest.raises(KafkaError) as refusal:
                encode(message, version)
            assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION


@each_message
def test_damaged_bytes_never_read_differently_from_apache(
    apache: ApacheOracle, facts: MessageFacts
) -> None:
    """Apache accepts and reads the same in all bytes that we accept; for the rest we raise one
    clean error.
    """
    owner = our_class(facts)

    def same(source: st.DataObject) -> None:
        version = source.draw(st.sampled_from(list(facts.versions)))
        whole = bytearray(encode(source.draw(generated(facts.struct, owner, version)), version))
        for _ in range(source.draw(st.integers(1, 3))):
            if whole:
                position = source.draw(st.integers(0, len(whole) - 1))
                whole[position] = source.draw(st.sampled_from([0, 1, 2, 127, 128, 255]))
        try:
            message = decode(owner, version, bytes(whole))
        except MalformedRequestError:
            return
        answer = apache.read(facts.name, version, bytes(whole))
        assert answer.unread == 0
        expected = json_view(facts.struct, message, version, for_writing=False)
        assert json.loads(answer.view) == expected

    try_examples(st.data(), same, MUTATIONS_PER_MESSAGE)
