"""The example notebook runs from beginning to end."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pipelines.at_work import send

from moldau import Admin
from moldau.admin import NewTopic
from moldau.cli.demo.orders import PARTITIONS, TOPIC, order
from moldau.testing import ThreadBroker, broker

pytestmark = pytest.mark.spark

NOTEBOOK = Path(__file__).parents[3] / "examples" / "notebooks" / "orders_in_pandas.py"
PNG = b"\x89PNG\r\n"


def test_a_topic_is_read_into_pandas_and_drawn(tmp_path: Path) -> None:
    moment = datetime(2026, 11, 16, tzinfo=UTC)
    with broker() as node:
        assert isinstance(node, ThreadBroker)
        with Admin(node.bootstrap) as admin:
            admin.create_topics([NewTopic(name=TOPIC, partitions=PARTITIONS)])
        send(node, TOPIC, [order(number, moment) for number in range(500)])
        done = subprocess.run(
            [sys.executable, NOTEBOOK, node.bootstrap, "drawn.png"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    # Ten of them are malformed.
    assert "490 orders of 10 users, drawn in drawn.png" in done.stdout
    content = (tmp_path / "drawn.png").read_bytes()
    assert content.startswith(PNG)
    assert len(content) > 10_000
