"""Named types for numbers: conversions lose nothing and refuse invalid texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.types import Uuid, parse_uuid, uuid_text


@given(st.binary(min_size=16, max_size=16))
def test_a_uuid_survives_its_text(raw: bytes) -> None:
    text = uuid_text(Uuid(raw))
    assert len(text) == 22
    assert parse_uuid(text) == raw


@pytest.mark.parametrize(
    "text", ["", "x", "A" * 21, "A" * 23, "A" * 21 + "+", "/" + "A" * 21, "ü" * 22]
)
def test_invalid_uuids_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a Kafka UUID"):
        parse_uuid(text)
