"""Debezium sends each change of a PostgreSQL table once, although Connect's worker or the node is
killed in between.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.apache import ApacheOracle, ApacheUnavailableError
from interop.live_broker import LiveNode
from interop.missing import CACHE, give_up
from interop.peers.connect_worker import ConnectWorker
from interop.peers.toolchains import debezium
from support.postgres_process import PASSWORD, PostgresProcess, postgres_server

from moldau.types import TopicPartition

pytestmark = pytest.mark.interop

TOPIC = "shop.public.customers"
JSON = "org.apache.kafka.connect.json.JsonConverter"


@pytest.fixture(scope="module")
def plugins() -> Path:
    try:
        return debezium(CACHE)
    except ApacheUnavailableError as reason:
        give_up(reason, "Debezium needs a JDK and Maven")


@pytest.fixture
def postgres() -> Iterator[PostgresProcess]:
    """Its log contains the changes that Debezium reads."""
    with postgres_server() as server:
        server.rows("ALTER SYSTEM SET wal_level = logical")
        server.stop("fast")
        server.start()
        yield server


def changes(node: LiveNode) -> list[tuple[Any, ...]]:
    """(operation, row before, row after), and None for a tombstone."""
    name = TopicPartition(TOPIC, 0)
    found: list[tuple[Any, ...]] = []
    for record in node.read([name], committed=True)[name]:
        if record.value is None:
            found.append((None,))
            continue
        event = json.loads(record.value)
        found.append((event["op"], event["before"], event["after"]))
    return found


@pytest.mark.parametrize("killed", ["worker", "node"])
def test_debezium_sends_each_change_once(
    apache: ApacheOracle,
    start_node: Callable[[], LiveNode],
    plugins: Path,
    postgres: PostgresProcess,
    tmp_path: Path,
    killed: str,
) -> None:
    node = start_node()
    node.create_topic(TOPIC)
    postgres.rows("CREATE TABLE customers (id int PRIMARY KEY, name text)")
    postgres.rows("ALTER TABLE customers REPLICA IDENTITY FULL")
    postgres.rows("INSERT INTO customers VALUES (1, 'Ada'), (2, 'Bob')")
    settings = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(postgres.port),
        "database.user": "boss",
        "database.password": PASSWORD,
        "database.dbname": "postgres",
        "topic.prefix": "shop",
        "table.include.list": "public.customers",
        "plugin.name": "pgoutput",
        "exactly.once.support": "required",
        "key.converter": JSON,
        "value.converter": JSON,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    }
    ada, bob = {"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}
    robert, eve = {"id": 2, "name": "Robert"}, {"id": 3, "name": "Eve"}
    wanted: list[tuple[Any, ...]] = [("r", None, ada), ("r", None, bob), ("c", None, eve)]

    def worker() -> ConnectWorker:
        return ConnectWorker(f"{apache.jar_folder}/*", node, tmp_path, plugins)

    with worker() as first:
        first.configure("customers", settings)
        first.wait_for(lambda: len(changes(node)) == 2, "the rows that are there")
        postgres.rows("INSERT INTO customers VALUES (3, 'Eve')")
        first.wait_for(lambda: len(changes(node)) == 3, "a new row")
        assert changes(node) == wanted
        # The table changes while the worker or the node is down.
        (first if killed == "worker" else node).kill()
        postgres.rows("UPDATE customers SET name = 'Robert' WHERE id = 2")
        wanted += [("u", bob, robert), ("d", ada, None), (None,)]
        if killed == "node":
            node.start()
            finish(first, node, postgres, wanted)
    if killed == "worker":
        with worker() as second:
            finish(second, node, postgres, wanted)


def finish(
    worker: ConnectWorker, node: LiveNode, postgres: PostgresProcess, wanted: list[tuple[Any, ...]]
) -> None:
    postgres.rows("DELETE FROM customers WHERE id = 1")
    worker.wait_for(lambda: len(changes(node)) >= len(wanted), "what has changed")
    assert changes(node) == wanted
    worker.stop()
