"""Java's properties files. The same cases run through java.util.Properties in the interop suite."""

import json
from pathlib import Path

import pytest

from moldau.config.properties import parse_properties
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

CASES: list[dict[str, object]] = json.loads(
    (Path(__file__).with_name("properties_cases.json")).read_text()
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case["text"])[:40])
def test_files_are_read_as_java_reads_them(case: dict[str, object]) -> None:
    assert parse_properties(str(case["text"])) == case["properties"]


@pytest.mark.parametrize("escape", ["\\u12", "\\u12g4", "\\uu0041", "\\u 041"])
def test_a_broken_escape_is_refused_with_its_line(escape: str) -> None:
    text = f"# comment\n\nfine=1\nbroken={escape}\n"
    with pytest.raises(KafkaError, match=r"server\.properties, line 4: ") as refused:
        parse_properties(text, source="server.properties")
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_a_continued_line_is_named_by_its_first_line() -> None:
    with pytest.raises(KafkaError, match="line 2: "):
        parse_properties("a=1\nb=x\\\n  \\\n \\u00zz\n")


def test_every_kind_of_line_end_is_recognized() -> None:
    assert parse_properties("a=1\rb=2\r\nc=3\nd=4") == {"a": "1", "b": "2", "c": "3", "d": "4"}
