"""Helpers for tests of running pipelines."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import moldau.pipelines as mp
from moldau import Admin, Producer
from moldau.core.pipelines.graph import Pipeline
from moldau.core.pipelines.query_progress import QueryProgress
from moldau.pipelines.compile.checking import check_plans
from moldau.pipelines.compile.queries import Query
from moldau.pipelines.compile.topics import ensure_topics
from moldau.pipelines.run.run_folder import RunFolder, folder_of
from moldau.pipelines.run.runner import Running
from moldau.testing import ThreadBroker


def make_topics(node: ThreadBroker, *names: str) -> None:
    with Admin(node.bootstrap) as admin:
        for made in admin.create_topics(names).values():
            assert not isinstance(made, Exception), made


def send(node: ThreadBroker, topic: str, values: Iterable[Any], key: bytes | None = None) -> None:
    with Producer(node.bootstrap) as producer:
        for value in values:
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            producer.send(topic, content, key=key)


def run_once(session: Any, pipeline: Pipeline, folder: Path) -> list[QueryProgress]:
    held = RunFolder(folder / "checkpoint")
    with held.held():
        ensure_topics(pipeline)
        return Running(session, pipeline, held).run(once=True)


def queries_of(session: Any, path: Path) -> list[Query]:
    """The queries as `moldau pipeline check` compiles them: without a broker."""
    pipeline = mp.load(path)
    return check_plans(session, pipeline, folder_of(pipeline, path))


def records_of(session: Any, node: ThreadBroker, topic: str) -> list[Any]:
    """All committed records, with headers as a dict."""
    rows = (
        session.read.format("moldau")
        .option("kafka.bootstrap.servers", node.bootstrap)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
        .orderBy("partition", "offset")
        .collect()
    )
    return [
        (
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            {one.key: bytes(one.value).decode() for one in row.headers or []},
        )
        for row in rows
    ]


def values_of(session: Any, node: ThreadBroker, topic: str) -> list[Any]:
    return [
        None if value is None else json.loads(value)
        for _, value, _ in records_of(session, node, topic)
    ]
