"""`meta.properties`: the owner of a log directory, in Java's properties format, as Kafka
writes it.
"""

import re
from pathlib import Path

from moldau.frozen import frozen
from moldau.storage.directory.checkpoints import parse_number
from moldau.storage.disk.failures import CorruptCheckpointError, excerpt
from moldau.storage.disk.filesystem import FileSystem, read_whole, write_atomically
from moldau.types import INT32_MAX, BrokerId, Uuid, parse_uuid, uuid_text

META_PROPERTIES_FILE = "meta.properties"

_VERSION_MAX = 1
_ESCAPE = re.compile(r"\\(.)")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PROPERTY = re.compile(r"((?:[^\\=: \t]|\\.)+)[ \t]*[=: \t][ \t]*((?:[^\\]|\\[^u])*)")


@frozen(kw_only=True)
class MetaProperties:
    """Version 0 (before KRaft) may lack any of the ids; version 1 has cluster and node id."""

    version: int = 1
    cluster_id: str | None
    node_id: BrokerId | None
    directory_id: Uuid | None


def read_meta_properties(filesystem: FileSystem, path: Path) -> MetaProperties:
    """Raises CorruptCheckpointError if the file lacks what its version requires."""
    properties = _parse(path, read_whole(filesystem, path))
    version = parse_number(properties.get("version", "").strip(), INT32_MAX)
    if version is None or version > _VERSION_MAX:
        raise CorruptCheckpointError(
            path, f"unknown version {excerpt(properties.get('version', ''))}"
        )
    node_key = "node.id" if version else "broker.id"
    if version and not {"cluster.id", node_key} <= properties.keys():
        raise CorruptCheckpointError(path, f"cluster.id or {node_key} is missing")
    node_id = parse_number(properties.get(node_key, ""), INT32_MAX)
    if node_id is None and node_key in properties:
        raise CorruptCheckpointError(path, f"{node_key} is not a number")
    directory_id: Uuid | None = None
    if "directory.id" in properties:
        try:
            directory_id = parse_uuid(properties["directory.id"])
        except ValueError as error:
            raise CorruptCheckpointError(path, str(error)) from None
    return MetaProperties(
        version=version,
        cluster_id=properties.get("cluster.id"),
        node_id=None if node_id is None else BrokerId(node_id),
        directory_id=directory_id,
    )


def write_meta_properties(filesystem: FileSystem, path: Path, meta: MetaProperties) -> None:
    # Kafka's order. `version` and `cluster.id` come last, so a file that was cut at a line is
    # detected.
    lines = ["#"]
    if meta.node_id is not None:
        lines.append(f"{'node.id' if meta.version else 'broker.id'}={meta.node_id}")
    if meta.directory_id is not None:
        lines.append(f"directory.id={uuid_text(meta.directory_id)}")
    lines.append(f"version={meta.version}")
    if meta.cluster_id is not None:
        lines.append(f"cluster.id={_escape(meta.cluster_id)}")
    write_atomically(filesystem, path, ("\n".join(lines) + "\n").encode("ascii"))


def _parse(path: Path, content: bytes) -> dict[str, str]:
    # Java reads Latin-1.
    text = content.decode("latin-1").replace("\r\n", "\n").replace("\r", "\n")
    if not text.endswith("\n"):
        raise CorruptCheckpointError(path, "empty" if not text else "the last line is cut off")
    properties: dict[str, str] = {}
    for line in text.split("\n"):
        stripped = line.lstrip(" \t")
        if not stripped or stripped[0] in "#!":
            continue
        found = _PROPERTY.fullmatch(stripped)
        if found is None or not stripped.replace("\t", " ").isprintable():
            raise CorruptCheckpointError(path, f"not a property: {excerpt(stripped)}")
        key, value = _unescape(found[1]), _unescape(found[2])
        if key in properties:
            raise CorruptCheckpointError(path, f"{key} appears twice")
        properties[key] = value
    return properties


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: _CONTROLS.get(found[1], found[1]), text)


def _escape(value: str) -> str:
    """As Java's Properties.store. Kafka's cluster ids are ASCII."""
    if not (value.isascii() and value.isprintable()):
        raise ValueError(f"a cluster id is printable ASCII, not {value!r}")
    escaped = re.sub(r"[\\=:#!]", r"\\\g<0>", value)
    return "\\" + escaped if escaped.startswith(" ") else escaped
