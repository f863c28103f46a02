"""Formats log directories, as `kafka-storage format` does: their node and cluster, the first
records of the cluster's metadata, and the voters. `meta.properties` is written last: without it
a directory is not formatted, even if other files exist.
"""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path
from random import Random
from typing import NamedTuple

from moldau.broker.node.bootstrap import BOOTSTRAP_FILE, write_bootstrap_records
from moldau.broker.quorum.snapshots import SnapshotId, SnapshotStore
from moldau.config.addresses import host_and_port
from moldau.config.broker import BrokerConfig
from moldau.core.metadata.image import KRAFT_VERSION, METADATA_VERSION
from moldau.core.metadata.levels import SCRAM_FROM
from moldau.core.metadata.snapshot_file import SnapshotHead, encode_snapshot
from moldau.core.metadata.starting_features import (
    feature_records,
    level_name,
    release_level,
    starting_levels,
)
from moldau.core.quorum.control_values import encode_kraft_version
from moldau.core.quorum.voters import Voter, VoterEndpoint, VoterKey, VoterSet
from moldau.frozen import frozen
from moldau.net.chance import SYSTEM_CHANCE, random_uuid
from moldau.protocol.errors import MoldauError
from moldau.protocol.records.control_records import ControlType
from moldau.protocol.wire.schema import Message
from moldau.storage.directory.directory import LOCK_FILE, directory_name, format_directory
from moldau.storage.directory.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    read_meta_properties,
)
from moldau.storage.disk.failures import DamagedFileError
from moldau.storage.disk.filesystem import FileSystem
from moldau.storage.log.names import LOG_SUFFIX
from moldau.types import METADATA_PARTITION, BrokerId, LeaderEpoch, parse_uuid, uuid_text

_SALT_BYTES = 16
_METADATA_DIRECTORY = directory_name(METADATA_PARTITION)
_WRITTEN = {BOOTSTRAP_FILE, LOCK_FILE, META_PROPERTIES_FILE, _METADATA_DIRECTORY}
_FIRST_SNAPSHOT = SnapshotId(epoch=0, offset=0)


class FormatError(MoldauError):
    """The directories cannot be formatted like this. Nothing was written."""


@frozen(kw_only=True)
class FormatOptions:
    cluster_id: str | None = None
    """None generates a new one."""
    standalone: bool = False
    """This node is the only voter."""
    initial_controllers: str | None = None
    """The voters as id@host:port:directory-id, separated by commas."""
    no_initial_controllers: bool = False
    release_version: str | None = None
    features: dict[str, int] = field(default_factory=dict)
    scram_users: Sequence[str] = ()
    ignore_formatted: bool = False


class Formatted(NamedTuple):
    cluster_id: str
    directories: list[tuple[Path, str]]
    """The directories that were formatted now, and their kinds."""
    levels: dict[str, int]


def formatted_directories(filesystem: FileSystem, config: BrokerConfig) -> list[Path]:
    """Not all, if a formatting was interrupted, one was added later, or a disk is broken."""
    formatted = []
    for path in directories_of(config):
        with contextlib.suppress(OSError):
            if filesystem.exists(path / META_PROPERTIES_FILE):
                formatted.append(path)
    return formatted


def is_left_by_formatting(name: str) -> bool:
    """Whether an interrupted formatting may have left that file or directory."""
    return name.removesuffix(".tmp") in _WRITTEN


def directories_of(config: BrokerConfig) -> list[Path]:
    return sorted({Path(each) for each in (*config.directories, config.metadata_directory)})


def format_node(
    filesystem: FileSystem,
    config: BrokerConfig,
    options: FormatOptions,
    now_ms: int,
    chance: Random = SYSTEM_CHANCE,
) -> Formatted:
    """Raises FormatError, or another MoldauError, in one clear line."""
    voters = _initial_voters(config, options, chance)
    release = None
    allow_unstable = config.unstable_feature_versions_enable
    if options.release_version is not None:
        release = release_level(options.release_version, allow_unstable=allow_unstable)
    levels = starting_levels(
        release,
        options.features,
        has_dynamic_quorum=not config.voters,
        allow_unstable=allow_unstable,
    )
    records = _bootstrap_records(levels, options.scram_users, chance)
    cluster_id = options.cluster_id or uuid_text(random_uuid(chance))
    plan = _Plan(
        filesystem=filesystem,
        config=config,
        cluster_id=cluster_id,
        voters=voters,
        levels=levels,
        records=records,
        now_ms=now_ms,
        chance=chance,
    )
    waiting = plan.unformatted(ignore_formatted=options.ignore_formatted)
    return Formatted(cluster_id, [(path, plan.format(path)) for path in waiting], levels)


@frozen(kw_only=True)
class _Plan:
    filesystem: FileSystem
    config: BrokerConfig
    cluster_id: str
    voters: VoterSet | None
    levels: dict[str, int]
    records: list[Message]
    now_ms: int
    chance: Random

    def unformatted(self, *, ignore_formatted: bool) -> list[Path]:
        """Checks all directories before anything is written."""
        waiting = []
        for path in directories_of(self.config):
            if self.filesystem.exists(path) and not self.filesystem.is_directory(path):
                raise FormatError(f"{path} is not a directory")
            if self.filesystem.exists(path / META_PROPERTIES_FILE):
                self._check_owner(path)
                if not ignore_formatted:
                    raise FormatError(
                        f"{path} is already formatted; --ignore-formatted formats the others"
                    )
            else:
                self._check_empty(path)
                waiting.append(path)
        return waiting

    def _check_owner(self, path: Path) -> None:
        try:
            meta = read_meta_properties(self.filesystem, path / META_PROPERTIES_FILE)
        except DamagedFileError as error:
            raise FormatError(str(error)) from error
        if meta.cluster_id not in {None, self.cluster_id}:
            raise FormatError(f"{path} belongs to cluster {meta.cluster_id}, not {self.cluster_id}")
        if meta.node_id not in {None, self.config.node_id}:
            raise FormatError(f"{path} belongs to node {meta.node_id}, not {self.config.node_id}")

    def _check_empty(self, path: Path) -> None:
        metadata = path / directory_name(METADATA_PARTITION)
        if self.filesystem.exists(metadata) and any(
            name.endswith(LOG_SUFFIX) for name in self.filesystem.list_directory(metadata)
        ):
            raise FormatError(f"{metadata} holds a metadata log, but {path} has no meta.properties")

    def format(self, path: Path) -> str:
        """Returns the directory's kind."""
        is_metadata = path == Path(self.config.metadata_directory)
        is_voter = self.voters is not None and self.config.node_id in self.voters.by_id
        directory_id = random_uuid(self.chance)
        kind = "data directory"
        self._make(path)
        write_bootstrap_records(self.filesystem, path, self.records, self.now_ms)
        if is_metadata:
            kind = "metadata directory"
            if self.voters is not None:
                kind = "dynamic metadata voter directory" if is_voter else "dynamic " + kind
                self._write_first_snapshot(path, self.voters)
            if self.voters is not None and is_voter:
                directory_id = self.voters.by_id[self.config.node_id].key.directory_id
        meta = MetaProperties(
            version=1,
            cluster_id=self.cluster_id,
            node_id=BrokerId(self.config.node_id),
            directory_id=directory_id,
        )
        format_directory(self.filesystem, path, meta)
        return kind

    def _make(self, path: Path) -> None:
        made = [each for each in (path, *path.parents) if not self.filesystem.exists(each)]
        self.filesystem.make_directory(path)
        # Also if it is there: an interrupted formatting may have made it.
        for each in made or [path]:
            self.filesystem.sync_directory(each.parent)

    def _write_first_snapshot(self, path: Path, voters: VoterSet) -> None:
        """At offset 0: contains only the voters."""
        directory = path / directory_name(METADATA_PARTITION)
        self._make(directory)
        head = SnapshotHead(
            epoch=LeaderEpoch(_FIRST_SNAPSHOT.epoch),
            timestamp_ms=self.now_ms,
            control_values=(
                (ControlType.KRAFT_VERSION, encode_kraft_version(self.levels[KRAFT_VERSION])),
                (ControlType.KRAFT_VOTERS, voters.encode()),
            ),
        )
        store = SnapshotStore(self.filesystem, directory)
        store.write(_FIRST_SNAPSHOT, encode_snapshot(head, (), now_ms=self.now_ms))


def _bootstrap_records(
    levels: dict[str, int], scram_users: Iterable[str], chance: Random
) -> list[Message]:
    records: list[Message] = [*feature_records(levels)]
    for text in scram_users:
        if levels[METADATA_VERSION] < SCRAM_FROM:
            raise FormatError(
                f"SCRAM users need {METADATA_VERSION} {level_name(SCRAM_FROM)} or later"
            )
        # Few nodes need it, and it loads the modules that hash passwords.
        from moldau.core.security.scram_arguments import parse_scram_argument

        records.append(parse_scram_argument(text, chance.randbytes(_SALT_BYTES)))
    return records


# Voters


def _initial_voters(
    config: BrokerConfig, options: FormatOptions, chance: Random
) -> VoterSet | None:
    """None if the format does not define them: static voters, or a controller that joins later."""
    wanted = [options.standalone, options.initial_controllers is not None]
    if sum([*wanted, options.no_initial_controllers]) > 1:
        raise FormatError(
            "only one of --standalone, --initial-controllers and --no-initial-controllers "
            "can be given"
        )
    if config.voters and any(wanted):
        raise FormatError(
            "controller.quorum.voters is set, which excludes --standalone and "
            "--initial-controllers: set controller.quorum.bootstrap.servers instead"
        )
    if options.initial_controllers is not None:
        return _parse_controllers(config, options.initial_controllers)
    if options.standalone:
        return _standalone_voters(config, chance)
    if config.is_controller and not config.voters and not options.no_initial_controllers:
        raise FormatError(
            "controller.quorum.voters is not set on this controller: give --standalone, "
            "--initial-controllers or --no-initial-controllers"
        )
    return None


def _standalone_voters(config: BrokerConfig, chance: Random) -> VoterSet:
    if not config.is_controller:
        raise FormatError("--standalone is for controllers, and process.roles has no controller")
    listener = config.advertised_controller_listeners[0]
    endpoint = VoterEndpoint(listener.name, listener.host or "localhost", listener.port)
    return VoterSet.of(
        [Voter(key=VoterKey(BrokerId(config.node_id), random_uuid(chance)), endpoints=(endpoint,))]
    )


def _parse_controllers(config: BrokerConfig, text: str) -> VoterSet:
    name = config.controller_names[0]
    voters = [_parse_controller(name, part) for part in text.split(",") if part.strip()]
    if not voters:
        raise FormatError("--initial-controllers is empty")
    found = VoterSet.of(voters)
    if len(found.by_id) < len(voters):
        raise FormatError("--initial-controllers names a node twice")
    return found


def _parse_controller(listener: str, text: str) -> Voter:
    number, _, rest = text.strip().partition("@")
    address, _, directory = rest.rpartition(":")
    parsed = host_and_port(address)
    if parsed is None or not (number.isascii() and number.isdecimal()):
        raise FormatError(f"{text.strip()!r} is not id@host:port:directory-id")
    try:
        directory_id = parse_uuid(directory)
    except ValueError as error:
        raise FormatError(f"{text.strip()!r}: {error}") from error
    return Voter(
        key=VoterKey(BrokerId(int(number)), directory_id),
        endpoints=(VoterEndpoint(listener, *parsed),),
    )
