"""Names for numbers: conversions lose nothing and refuse what is no UUID."""

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
def test_what_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a Kafka UUID"):
        parse_uuid(text)
