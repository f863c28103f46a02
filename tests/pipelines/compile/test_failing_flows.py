"""The error of a failing flow names the line inside it and the record; a failure that would repeat
is not retried.
"""

import logging
from pathlib import Path
from typing import Any

import pytest
from pipelines.at_work import make_topics, queries_of, run_once, send
from pipelines.pipeline_files import written

import moldau.pipelines as mp
from moldau.testing import ThreadBroker

pytestmark = pytest.mark.spark

UDF = """\
import moldau.pipelines as mp
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

settings = mp.pipeline(settings={{"bootstrap.servers": "{bootstrap}"}})
numbers = mp.topic("failing", schema="n INT", start="earliest")


def share(n):
    return 1 / (n - 2)


@mp.flow(into=mp.topic("failing.shares"))
def shares(numbers):
    return numbers.select(F.udf(share, DoubleType())("n").alias("share"))
"""
INSIDE = """\
import moldau.pipelines as mp

numbers = mp.topic("failing", schema="n INT")


@mp.flow(into=mp.topic("failing.first"))
def first(numbers):
    found = numbers.where("n > 1")
    return found.select("m")


@mp.flow(into=mp.topic("failing.second"))
def second(numbers):
    found = numbers
    return undefined(found)
"""


def test_a_failing_function_is_reported_with_its_line_and_record_and_not_retried(
    session: Any, node: ThreadBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_topics(node, "failing")
    send(node, "failing", [{"n": n} for n in range(4)])
    path = written(tmp_path, "udf.py", UDF.format(bootstrap=node.bootstrap))
    with caplog.at_level(logging.WARNING), pytest.raises(mp.MoldauError) as caught:
        run_once(session, mp.load(path), tmp_path)
    assert str(caught.value) == (
        f"udf.numbers: {path}:10: in share: ZeroDivisionError: division by zero; "
        "record failing-0 offset 2: {'n': 2}"
    )
    assert "retrying batch" not in caplog.text


CALLS = """\
import json
import moldau.pipelines as mp
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

settings = mp.pipeline(settings={{"bootstrap.servers": "{bootstrap}"}})
lines = mp.topic("{topic}", schema="line STRING", start="earliest")


class NoSuchUserError(Exception):
    pass


def parsed(line):
    found = json.loads(line)
    if found == 7:
        raise NoSuchUserError(line)
    if found == 8:
        raise ConnectionRefusedError(line)
    return str(found)


@mp.flow(into=mp.topic("{topic}.parsed"))
def parse(lines):
    return lines.select(F.udf(parsed, StringType())("line").alias("found"))
"""


@pytest.mark.parametrize(
    ("line", "told", "is_tried_again"),
    [
        ("{", ":15: in parsed: JSONDecodeError: ", False),
        ("7", ":17: in parsed: NoSuchUserError: 7; ", False),
        ("8", ":19: in parsed: ConnectionRefusedError: 8; ", True),
    ],
)
def test_the_record_is_found_for_every_kind_of_exception(
    session: Any,
    node: ThreadBroker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    line: str,
    told: str,
    is_tried_again: bool,
) -> None:
    topic = f"failing.lines.{ord(line)}"
    make_topics(node, topic)
    send(node, topic, [{"line": "1"}, {"line": line}, {"line": "2"}])
    path = written(tmp_path, "my-calls.py", CALLS.format(bootstrap=node.bootstrap, topic=topic))
    with caplog.at_level(logging.WARNING), pytest.raises(mp.MoldauError) as caught:
        run_once(session, mp.load(path), tmp_path)
    assert f"{path}{told}" in str(caught.value)
    assert str(caught.value).endswith(f"; record {topic}-0 offset 1: {{'line': '{line}'}}")
    assert ("retrying batch" in caplog.text) is is_tried_again


def test_an_error_inside_a_flow_is_reported_with_the_line_inside(
    session: Any, tmp_path: Path
) -> None:
    path = written(tmp_path, "inside.py", INSIDE)
    with pytest.raises(mp.PipelineError) as caught:
        queries_of(session, path)
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{path}:9:12: 'first': [UNRESOLVED_COLUMN")
    assert second == f"{path}:15:12: 'second': NameError: name 'undefined' is not defined"
