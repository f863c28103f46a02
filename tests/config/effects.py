"""The settings that the source reads: a search for their attributes outside of the package that
declares them.
"""

import re
from pathlib import Path

from moldau.config.broker import BrokerConfig
from moldau.config.group import GroupConfig
from moldau.config.log import LogConfig

SOURCE = Path(__file__).parents[2] / "src" / "moldau"
# Values that BrokerConfig derives from several settings: reading one obeys all of them.
DERIVED = {
    "directories": ("log.dir", "log.dirs"),
    "metadata_directory": ("metadata.log.dir",),
    "voters": ("controller.quorum.voters",),
    "bound_listeners": ("listeners", "listener.security.protocol.map"),
    "broker_listeners": ("listeners", "listener.security.protocol.map"),
    "controller_listeners": ("listeners", "listener.security.protocol.map"),
    "controller_names": ("controller.listener.names",),
    "advertised_broker_listeners": ("advertised.listeners",),
    "advertised_controller_listeners": ("advertised.listeners",),
    "inter_broker_name": ("inter.broker.listener.name", "security.inter.broker.protocol"),
    "connection_limits_by_host": ("max.connections.per.ip.overrides",),
    "is_broker": ("process.roles",),
    "is_controller": ("process.roles",),
}
# Settings that config/cleaner.py reads.
CLEANER = {
    "dedupe_buffer_bytes": "log.cleaner.dedupe.buffer.size",
    "load_factor": "log.cleaner.io.buffer.load.factor",
    "io_buffer_bytes": "log.cleaner.io.buffer.size",
}


def read_attributes() -> frozenset[str]:
    """Every attribute name in the code of a node; clients and messages use the same names."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).parts
        if parts[0] in {"broker", "core", "storage", "cli", "testing"} and "client" not in parts:
            found |= _attributes(path)
    return frozenset(found)


def read_by_clients() -> frozenset[str]:
    """Every attribute name of `config` in the code of a client."""
    texts = [path.read_text(encoding="utf-8") for path in (SOURCE / "client").rglob("*.py")]
    return frozenset(re.findall(r"config\.([a-z][a-z0-9_]+)\b", "\n".join(texts)))


def _attributes(path: Path) -> set[str]:
    return set(re.findall(r"\.([a-z][a-z0-9_]+)\b", path.read_text(encoding="utf-8")))


def obeyed_settings() -> tuple[set[str], set[str], set[str]]:
    """Names of the broker's, a topic's and a group's settings that are read."""
    read = read_attributes()
    broker = {name for name, one in BrokerConfig.declared.items() if one.attribute in read}
    for attribute, names in DERIVED.items():
        broker |= set(names) if attribute in read else set()
    broker |= {name for attribute, name in CLEANER.items() if attribute in read}
    topic = {name for name, one in LogConfig.declared.items() if one.attribute in read}
    topic |= {
        name
        for attribute, names in {
            "compacts": ("cleanup.policy",),
            "deletes": ("cleanup.policy",),
            "segment_size_max": ("segment.bytes", "internal.segment.bytes"),
            "stamps_append_time": ("message.timestamp.type",),
        }.items()
        if attribute in read
        for name in names
    }
    group = {name for name, one in GroupConfig.declared.items() if one.attribute in read}
    for declared, obeyed in ((LogConfig.declared, topic), (GroupConfig.declared, group)):
        broker |= {synonym for name in obeyed for synonym in declared[name].synonyms}
    return broker, topic, group
