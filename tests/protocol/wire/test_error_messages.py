"""Error messages that no string of the protocol can hold."""

import re

import pytest
from protocol.codec_loops import LOOPS

from moldau.protocol.messages.update_features import UpdateFeaturesResponse
from moldau.protocol.wire.primitives import SHORTENED_LENGTH, STRING_BYTES_MAX


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", LOOPS)
def test_an_error_message_that_is_too_long_keeps_its_start_and_its_end(
    name: str, version: int
) -> None:
    """It quotes what a client has sent, whose connection must survive that."""
    loops = LOOPS[name]
    quoted = "\u20ac" * 11_000
    response = UpdateFeaturesResponse(error_message=f"Invalid {quoted}: it is unknown.")
    read = loops.decode(UpdateFeaturesResponse, version, loops.encode(response, version))
    assert re.fullmatch(r"Invalid \u20ac+ \.\.\. \u20ac+: it is unknown\.", read.error_message)
    assert len(read.error_message) == SHORTENED_LENGTH + len(" ... ")
    longest = UpdateFeaturesResponse(error_message="x" * STRING_BYTES_MAX)
    assert loops.decode(UpdateFeaturesResponse, version, loops.encode(longest, version)) == longest
