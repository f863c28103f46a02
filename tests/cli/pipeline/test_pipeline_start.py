"""The output of a starting run: each phase, before there is a Spark session."""

import re
from pathlib import Path

import pytest
from cli.kafka_command import KafkaCommand, fresh

PIPELINE = """\
name: begun
sources:
  numbers: {{topic: {topic}, schema: n BIGINT}}
steps:
  copied: {{sql: SELECT n FROM numbers, into: {{topic: {topic}-copied}}}}
"""


@pytest.fixture
def path(kafka: KafkaCommand, tmp_path: Path) -> Path:
    topic = fresh("numbers")
    kafka("topics", "create", topic)
    found = tmp_path / "begun.yaml"
    found.write_text(PIPELINE.format(topic=topic))
    return found


def test_each_phase_is_a_line_in_a_pipe(kafka: KafkaCommand, path: Path) -> None:
    ran = kafka("pipeline", "run", path, "--master", "nowhere", status=1)
    assert ran.lines == ["begun is looking for topics", "begun is starting Spark at nowhere"]


def test_json_is_for_queries_alone(kafka: KafkaCommand, path: Path) -> None:
    assert not kafka("pipeline", "run", path, "--master", "nowhere", "--json", status=1).output


def test_a_terminal_shows_the_phase_and_its_time(kafka: KafkaCommand, path: Path) -> None:
    status, printed = kafka.on_a_terminal("pipeline", "run", path, "--master", "nowhere")
    assert status == 1
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed)
    assert re.search(r"starting Spark at nowhere, \d+ s", plain)
    assert "Spark is starting" not in plain
