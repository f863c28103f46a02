"""Reads a pipeline written in YAML, with steps in Spark SQL, and the Python files that it names."""

from pathlib import Path
from typing import Any

from moldau.core.pipelines.graph import (
    Example,
    Expectation,
    Files,
    Flow,
    Format,
    FormatKind,
    Http,
    Lookup,
    Mode,
    Postgres,
    Source,
    Target,
    Topic,
)
from moldau.core.pipelines.sql_inputs import tables_in
from moldau.pipelines.declare import flows, sources, tables
from moldau.pipelines.declare.arguments import pipeline_error, start_of, trigger_of, word_of
from moldau.pipelines.declare.declarations import Declarations
from moldau.pipelines.declare.python_file import read_python
from moldau.pipelines.declare.yaml_nodes import Node, read_document

_TOP = (
    "name", "delivery", "trigger", "checkpoint", "settings", "python", "sources", "lookups",
    "steps", "tests",
)  # fmt: skip
_FORMAT = ("format", "schema", "options", "registry", "written_schema", "message")
_TOPIC_SOURCE = (
    "topic", *_FORMAT, "start", "dead_letter", "on_error", "expect", "max_offsets_per_trigger",
    "fail_on_data_loss", "columns",
)  # fmt: skip
_FILE_SOURCE = (
    "files", "format", "schema", "options", "max_files_per_trigger", "dead_letter", "on_error",
    "expect",
)  # fmt: skip
_HTTP_SOURCE = (
    "http", "format", "schema", "every", "timeout", "attempts", "headers", "params", "path",
    "cursor", "dead_letter", "on_error", "expect",
)  # fmt: skip
_POSTGRES_SOURCE = (
    "postgres", "url", "by", "key", "schema", "start", "lag", "max_rows_per_trigger", "tasks",
    "dead_letter", "on_error", "expect",
)  # fmt: skip
_POSTGRES_TARGET = ("postgres", "url", "key", "create")
_TOPIC_TARGET = ("topic", *_FORMAT, "key", "compacted", "partitions", "replication", "config")
_BROKERS = dict.fromkeys(
    ("bootstrap", "bootstrap.servers", "bootstrap_servers", "kafka.bootstrap.servers", "brokers"),
    "a pipeline names its brokers once, at the top: settings: {bootstrap.servers: host:port}",
)
_NOT_OF_SOURCES = _BROKERS | dict.fromkeys(
    ("partitions", "replication", "config", "compacted"),
    "it is for topics that are written, under 'into'",
)
_TABLE_TARGET = ("table", "format", "partition_by", "catalog")
_TABLE_LOOKUP = ("table", "format", "schema", "catalog", "refresh")
_POSTGRES_LOOKUP = ("postgres", "url", "key", "schema", "refresh")
_ANY_SOURCE = (*_TOPIC_SOURCE, *_FILE_SOURCE, *_HTTP_SOURCE, *_POSTGRES_SOURCE)
_ANY_LOOKUP = (*_TABLE_LOOKUP, *_POSTGRES_LOOKUP)
_ANY_TARGET = (*_TOPIC_TARGET, *_TABLE_TARGET, *_POSTGRES_TARGET)
_STEP = ("sql", "into", "mode", "on_error", "expect")
_EXAMPLE = ("name", "given", "expect")


def read_yaml(path: Path) -> Declarations:
    """Raises PipelineError."""
    top = read_document(path).items("a pipeline", _TOP, _BROKERS)
    found = Declarations(settings=_settings(top, read_document(path)))
    if "python" in top:
        for word in top["python"].words("python"):
            file = path.parent / word
            if not file.is_file():
                raise top["python"].error(f"there is no file {file}")
            found.add(read_python(file))
    own = Declarations()
    for name, node in _children(top, "sources"):
        own.sources[name] = _source(name, node)
    for name, node in _children(top, "lookups"):
        own.lookups[name] = _lookup(name, node)
    for name, node in _children(top, "steps"):
        own.flows[name] = _step(name, node)
    if "tests" in top:
        own.examples = [_example(node) for node in top["tests"].entries("tests")]
    found.add(own)
    return found


def _children(top: dict[str, Node], what: str) -> list[tuple[str, Node]]:
    return list(top[what].items(what).items()) if what in top else []


def _settings(top: dict[str, Node], document: Node) -> flows.Settings:
    def text(name: str) -> str | None:
        return top[name].text(name) if name in top else None

    def spot_of(name: str) -> Any:
        return top[name].spot if name in top else document.spot

    delivery = text("delivery")
    settings = top["settings"].items("settings") if "settings" in top else {}
    brokers = settings.get("bootstrap.servers")
    declared = flows.pipeline(
        text("name"),
        settings={name: str(node.plain()) for name, node in settings.items()},
        checkpoint=text("checkpoint"),
        trigger=None,
        spot=spot_of("name"),
    )
    return flows.Settings(
        spot=declared.spot,
        name=declared.name,
        settings=declared.settings,
        brokers_spot=None if brokers is None else brokers.spot,
        checkpoint=declared.checkpoint,
        delivery=declared.delivery
        if delivery is None
        else word_of(type(declared.delivery), delivery, "delivery", spot_of("delivery")),
        trigger=trigger_of(text("trigger"), spot_of("trigger")),
    )


def _source(name: str, node: Node) -> Source:
    found = node.items(f"source '{name}'")
    if "files" in found:
        return _files(name, node)
    if "postgres" in found:
        return _postgres(node.items(f"source '{name}'", _POSTGRES_SOURCE, _NOT_OF_SOURCES), node)
    if "http" in found:
        return _http(name, node)
    if "topic" not in found:
        node.items(f"source '{name}'", _ANY_SOURCE, _NOT_OF_SOURCES)
        raise node.error(f"source '{name}' needs one of topic, files, http and postgres")
    found = node.items(f"source '{name}'", _TOPIC_SOURCE, _NOT_OF_SOURCES)
    start = found.get("start")
    return sources.topic(
        found["topic"].text("topic"),
        format=_format(found, node),
        start="latest" if start is None else _start(start),
        dead_letter=_text(found, "dead_letter"),
        on_error=_text(found, "on_error"),
        expect=_expect(found),
        max_offsets_per_trigger=_whole(found, "max_offsets_per_trigger"),
        fail_on_data_loss=_flag(found, "fail_on_data_loss", True),
        columns=found["columns"].words("columns") if "columns" in found else (),
        spot=node.spot,
    )


def _lookup(name: str, node: Node) -> Lookup:
    what = f"lookup '{name}'"
    found = node.items(what)
    refresh = _text(found, "refresh") or "start"
    if "postgres" in found:
        return _postgres(node.items(what, _POSTGRES_LOOKUP), node, refresh)
    if "table" not in found:
        node.items(what, _ANY_LOOKUP)
        raise node.error(f"{what} needs table or postgres")
    found = node.items(what, _TABLE_LOOKUP)
    return tables.table(
        found["table"].text("table"),
        format=_text(found, "format") or "parquet",
        catalog=_catalog(found["catalog"]) if "catalog" in found else None,
        schema=_text(found, "schema"),
        refresh=refresh,
        spot=node.spot,
    )


def _start(node: Node) -> Any:
    value = node.plain()
    if isinstance(value, dict):
        found = node.items("start", ("timestamp",))
        if "timestamp" not in found:
            raise node.error("start must be latest, earliest, group, a time or {timestamp: …}")
        return _start(found["timestamp"])
    try:
        return start_of(value, node.spot)
    except AttributeError:
        raise node.error(
            f"start must be latest, earliest, group or a time, not {value!r}"
        ) from None


def _files(name: str, node: Node) -> Files:
    found = node.items(f"source '{name}'", _FILE_SOURCE, _NOT_OF_SOURCES)
    if "format" not in found:
        raise node.error(
            f"source '{name}' has no format; choose from {', '.join(sources.FILE_FORMATS)}"
        )
    options = found["options"].items("options") if "options" in found else {}
    return sources.files(
        found["files"].text("files"),
        format=found["format"].text("format"),
        schema=_text(found, "schema"),
        dead_letter=_text(found, "dead_letter"),
        on_error=_text(found, "on_error"),
        expect=_expect(found),
        max_files_per_trigger=_whole(found, "max_files_per_trigger"),
        options={option: str(value.plain()) for option, value in options.items()},
        spot=node.spot,
    )


def _http(name: str, node: Node) -> Http:
    found = node.items(f"source '{name}'", _HTTP_SOURCE, _NOT_OF_SOURCES)

    def words(what: str) -> dict[str, str] | None:
        if what not in found:
            return None
        return {name: str(value.plain()) for name, value in found[what].items(what).items()}

    return sources.http(
        found["http"].text("http"),
        format=_text(found, "format") or "json",
        schema=_text(found, "schema"),
        every=_text(found, "every") or "10s",
        timeout=_text(found, "timeout") or "30s",
        attempts=_whole(found, "attempts") or 5,
        headers=words("headers"),
        params=words("params"),
        path=_text(found, "path"),
        cursor=words("cursor"),
        dead_letter=_text(found, "dead_letter"),
        on_error=_text(found, "on_error"),
        expect=_expect(found),
        spot=node.spot,
    )


def _postgres(found: dict[str, Node], node: Node, refresh: str | None = None) -> Postgres:
    start = found["start"].plain() if "start" in found else "earliest"
    return tables.postgres(
        found["postgres"].text("postgres"),
        url=_text(found, "url") or "",
        key=found["key"].words("key") if "key" in found else (),
        by=_text(found, "by"),
        schema=_text(found, "schema"),
        start=start,
        lag=_text(found, "lag"),
        max_rows_per_trigger=_whole(found, "max_rows_per_trigger"),
        tasks=_whole(found, "tasks") or 1,
        dead_letter=_text(found, "dead_letter"),
        on_error=_text(found, "on_error"),
        expect=_expect(found),
        create=_flag(found, "create", True),
        refresh=refresh,
        spot=node.spot,
    )


def _format(found: dict[str, Node], node: Node) -> Format:
    spot = found["format"].spot if "format" in found else node.spot
    word = found["format"].text("format") if "format" in found else "json"
    kind = word_of(FormatKind, word, "format", spot)
    schema = found["schema"].text("schema") if "schema" in found else None
    options = found["options"].items("options") if "options" in found else {}
    pairs = tuple((name, str(value.plain())) for name, value in options.items())
    if kind in {FormatKind.AVRO, FormatKind.PROTOBUF, FormatKind.JSON_SCHEMA}:
        if "registry" not in found:
            raise pipeline_error(spot, f"{kind} needs a registry: http://host:port")
        written = found.get("message" if kind is FormatKind.PROTOBUF else "written_schema")
        text = "" if written is None else written.text("written_schema")
        pairs = (("registry", found["registry"].text("registry")), ("written", text))
    return Format(kind, schema, pairs)


def _step(name: str, node: Node) -> Flow:
    found = node.items(f"step '{name}'", _STEP)
    if "sql" not in found:
        raise node.error(f"step '{name}' has no sql")
    sql = found["sql"].sql()
    mode, on_error = found.get("mode"), found.get("on_error")
    expected = _expect(found)
    return Flow(
        name=name,
        inputs=tables_in(sql.text),
        body=sql,
        spot=node.spot,
        into=_target(name, found["into"]) if "into" in found else None,
        mode=Mode.APPEND if mode is None else word_of(Mode, mode.plain(), "mode", mode.spot),
        on_error=flows.reaction_of(
            None if on_error is None else on_error.plain(),
            expected,
            node.spot if on_error is None else on_error.spot,
        ),
        expect=expected,
    )


def _expect(found: dict[str, Node]) -> tuple[Expectation, ...]:
    if "expect" not in found:
        return ()
    conditions = found["expect"].items("expect").items()
    return tuple(
        Expectation(name, condition.text(name), condition.spot) for name, condition in conditions
    )


def _target(name: str, node: Node) -> Target:
    what = f"'into' of step '{name}'"
    found = node.items(what)
    if "table" in found:
        found = node.items(what, _TABLE_TARGET)
        return tables.table(
            found["table"].text("table"),
            format=found["format"].text("format") if "format" in found else "parquet",
            partition_by=found["partition_by"].words("partition_by")
            if "partition_by" in found
            else (),
            catalog=_catalog(found["catalog"]) if "catalog" in found else None,
            spot=node.spot,
        )
    if "postgres" in found:
        return _postgres(node.items(what, _POSTGRES_TARGET), node)
    if "topic" not in found:
        node.items(what, _ANY_TARGET, _BROKERS)
        raise node.error(f"{what} needs one of topic, table and postgres")
    found = node.items(what, _TOPIC_TARGET, _BROKERS)
    return _topic_target(found, node)


def _catalog(node: Node) -> str | dict[str, str]:
    if isinstance(node.plain(), dict):
        return {name: str(value.plain()) for name, value in node.items("catalog").items()}
    return node.text("catalog")


def _topic_target(found: dict[str, Node], node: Node) -> Topic:
    return sources.topic(
        found["topic"].text("topic"),
        format=_format(found, node),
        key=found["key"].words("key") if "key" in found else (),
        compacted=_flag(found, "compacted", False),
        partitions=_whole(found, "partitions"),
        replication=_whole(found, "replication"),
        config={name: value.plain() for name, value in found["config"].items("config").items()}
        if "config" in found
        else None,
        spot=node.spot,
    )


def _text(found: dict[str, Node], name: str) -> str | None:
    return found[name].text(name) if name in found else None


def _flag(found: dict[str, Node], name: str, default: bool) -> bool:
    return found[name].flag(name) if name in found else default


def _whole(found: dict[str, Node], name: str) -> int | None:
    return found[name].whole(name) if name in found else None


def _example(node: Node) -> Example:
    found = node.items("a test", _EXAMPLE)
    for needed in _EXAMPLE:
        if needed not in found:
            raise node.error(f"a test has no '{needed}'")
    given, expect = found["given"].items("given"), found["expect"].items("expect")
    return Example(
        found["name"].text("name"),
        {name: rows.rows(f"given {name}") for name, rows in given.items()},
        {name: rows.rows(f"expected {name}") for name, rows in expect.items()},
        node.spot,
    )
