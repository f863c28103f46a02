"""The checks and preparations before a node runs: safe listeners, their ports, the data directories
and their owner.
"""

import contextlib
import ipaddress
import logging
import resource
import shlex
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from moldau.broker.node.formatting import (
    FormatOptions,
    directories_of,
    format_node,
    formatted_directories,
    is_left_by_formatting,
)
from moldau.broker.node.host import Host
from moldau.config.broker import BrokerConfig
from moldau.config.listeners import WILDCARD_HOST, Listener, SecurityProtocol
from moldau.config.unsupported import refuse_unsupported
from moldau.frozen import frozen
from moldau.net.chance import random_uuid
from moldau.net.network import Network
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.directory.meta_properties import META_PROPERTIES_FILE, read_meta_properties
from moldau.storage.disk.failures import DirectoryOfflineError, DiskFullError, ForeignDirectoryError
from moldau.storage.disk.filesystem import FileSystem
from moldau.storage.segment.open_segments import descriptor_limit, segments_open_max
from moldau.types import BrokerId

_log = logging.getLogger(__name__)

_OTHER_DESCRIPTORS = 64
# OPEN_MAX: the limit that its kernel always grants.
_DESCRIPTORS_ON_MACOS = 10_240
_CONNECTIONS_MIN = 8
_LOOPBACK_NAMES = {"localhost", "ip6-localhost", "ip6-loopback"}


@frozen(kw_only=True)
class NodeOptions:
    """A node's options that are not Kafka settings."""

    formats_itself: bool = False
    """Formats unformatted directories at the start."""
    config_file: Path | None = None
    """The properties file, for the hint about formatting."""
    insecure_listeners: frozenset[str] = frozenset()
    """Listeners that other machines may reach without authentication."""


def check_can_run(config: BrokerConfig, options: NodeOptions) -> None:
    """Raises MoldauError for settings that this release does not support, or that need explicit
    consent.
    """
    refuse_unsupported(config)
    allowed = {name.upper() for name in options.insecure_listeners}
    known = {listener.name for listener in config.bound_listeners}
    if "listener.security.protocol.map" in config.given:
        # A listener that is added later has a protocol already.
        known |= set(config.security_protocols)
    unknown = allowed - known
    if unknown:
        names = ", ".join(listener.name for listener in config.bound_listeners)
        raise MoldauError(f"--insecure-listener {min(unknown)} is not one of the listeners {names}")
    for listener in config.bound_listeners:
        check_listener(listener, options)
    name = config.controller_names[0]
    if config.security_protocols[name] is not SecurityProtocol.PLAINTEXT:
        raise MoldauError(
            f"the controllers' listener {name} needs {config.security_protocols[name].name}; "
            "so far only PLAINTEXT is supported"
        )


def check_listener(listener: Listener, options: NodeOptions) -> None:
    """Raises MoldauError for a listener that this release does not support, or that needs explicit
    consent.
    """
    if listener.security_protocol is not SecurityProtocol.PLAINTEXT:
        raise MoldauError(
            f"listener {listener.name} needs {listener.security_protocol.name}; "
            "so far only PLAINTEXT is supported"
        )
    allowed = {name.upper() for name in options.insecure_listeners}
    if not is_loopback(listener.host) and listener.name not in allowed:
        raise MoldauError(
            f"listener {listener.name} can be reached from other machines without a password; "
            f"bind it to 127.0.0.1, or start with --insecure-listener {listener.name}"
        )


def is_loopback(host: str) -> bool:
    if host in _LOOPBACK_NAMES:
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def raise_descriptor_limit() -> None:
    """Each connection and each open segment takes a descriptor: raise the soft limit to the hard
    one. macOS calls its hard limit unlimited and refuses more than its kernel's limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        if soft < _DESCRIPTORS_ON_MACOS:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS_ON_MACOS, hard))


def connections_possible() -> int:
    """The descriptors that the logs leave. A client beyond them would take one from a log, and a
    log that cannot open its files takes its directory offline.
    """
    return max(descriptor_limit() - segments_open_max() - _OTHER_DESCRIPTORS, _CONNECTIONS_MIN)


def with_ports(config: BrokerConfig, ports: Mapping[str, int]) -> BrokerConfig:
    """The settings with the bound ports in place of 0."""
    if all(listener.port for listener in config.bound_listeners):
        return config
    properties = dict(config.given)
    properties["listeners"] = ",".join(
        f"{listener.name}://{_bracketed(listener.host)}:{ports[listener.name]}"
        for listener in config.bound_listeners
    )
    if config.controller_listeners and config.controller_quorum_bootstrap_servers:
        controller = config.controller_listeners[0]
        properties["controller.quorum.bootstrap.servers"] = ",".join(
            f"{server.removesuffix(':0')}:{ports[controller.name]}"
            if server.endswith(":0")
            else server
            for server in config.controller_quorum_bootstrap_servers
        )
    return BrokerConfig.parse(properties)


def reachable_host(host: str, network: Network) -> str:
    """The host name that other machines use, if a listener binds all addresses."""
    return network.full_name() if host in {"", WILDCARD_HOST, "::"} else host


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class Directories:
    """The open, locked directories of a node. `close` closes and unlocks those that are still
    open.
    """

    def __init__(
        self,
        by_path: Mapping[Path, LogDirectory],
        config: BrokerConfig,
        unavailable: Mapping[Path, str],
    ) -> None:
        self._by_path = by_path
        self.metadata = by_path[Path(config.metadata_directory)]
        paths = _unique(config.directories)
        self.logs = [by_path[path] for path in paths if path in by_path]
        self.unavailable = [path for path in paths if path in unavailable]
        """Log directories that could not be opened."""
        # It was checked when they were opened.
        self.cluster_id = self.metadata.meta.cluster_id or ""

    @property
    def has_own_metadata(self) -> bool:
        """The metadata log has a directory without other logs."""
        return self.metadata not in self.logs

    @property
    def previous_epoch(self) -> int:
        """The broker epoch of the last clean shutdown; -1 if it missed any of the directories."""
        epochs = {directory.clean_stop_epoch for directory in self.logs}
        epoch = epochs.pop() if len(epochs) == 1 else None
        return -1 if epoch is None else epoch

    def take_reserves(self, bytes_max: int) -> None:
        for directory in self._by_path.values():
            if directory.is_online and bytes_max > 0:
                try:
                    directory.reserve.take(bytes_max)
                except OSError as error:
                    _log.warning("too little disk space in %s: %s", directory.path, error.strerror)

    def release_reserves(self) -> None:
        for directory in self._by_path.values():
            directory.reserve.release()

    def mark_metadata(self, broker_epoch: int) -> None:
        """The metadata log is closed. If it cannot be marked, the next start checks it."""
        with contextlib.suppress(KafkaError):
            self.metadata.mark_clean_stop(broker_epoch)

    def restore_markers(self) -> None:
        _restore_markers(self._by_path.values())

    def close(self) -> None:
        for directory in self._by_path.values():
            directory.close()


def _format_command(config: BrokerConfig, options: NodeOptions) -> str:
    """To be pasted into a shell."""
    file = shlex.quote(str(options.config_file or "server.properties"))
    if config.is_controller and not config.voters:
        if len(config.controller_quorum_bootstrap_servers) == 1:
            return f"moldau storage format --standalone -c {file} -t $(moldau storage random-uuid)"
        voters = "--initial-controllers ID@HOST:PORT:DIRECTORY_ID,..."
        return f"moldau storage format {voters} -c {file} -t CLUSTER_ID"
    if len(config.voters) == 1 and config.is_controller:
        return f"moldau storage format -c {file} -t $(moldau storage random-uuid)"
    # All nodes of a cluster have the same id.
    return f"moldau storage format -c {file} -t CLUSTER_ID"


def open_directories(
    host: Host, config: BrokerConfig, options: NodeOptions, now_ms: int
) -> Directories:
    """Formats directories if requested and necessary; opens and locks them all. Raises
    MoldauError.
    """
    filesystem, paths = host.filesystem, directories_of(config)
    if options.formats_itself:
        _format_rest(host, config, now_ms)
    formatted = formatted_directories(filesystem, config)
    if not formatted:
        raise ForeignDirectoryError(
            paths[0], f"is not formatted; first run: {_format_command(config, options)}"
        )
    cluster_id = _cluster_id(filesystem, formatted)
    _refuse_unformatted(filesystem, set(paths) - set(formatted), formatted)
    opened: dict[Path, LogDirectory] = {}
    unavailable: dict[Path, str] = {}
    try:
        for path in paths:
            try:
                opened[path] = LogDirectory.open(
                    filesystem,
                    path,
                    cluster_id=cluster_id,
                    node_id=BrokerId(config.node_id),
                    new_directory_id=random_uuid(host.chance),
                )
            except (DirectoryOfflineError, DiskFullError) as error:
                unavailable[path] = error.reason
            except OSError as error:
                unavailable[path] = str(error.strerror)
        _check_usable(config, opened, unavailable)
        return Directories(opened, config, unavailable)
    except BaseException:
        _restore_markers(opened.values())
        for directory in opened.values():
            directory.close()
        raise


def _format_rest(host: Host, config: BrokerConfig, now_ms: int) -> None:
    """Formats the directories that are not formatted. If some are, a formatting was interrupted:
    they keep the id of the cluster.
    """
    filesystem = host.filesystem
    formatted = formatted_directories(filesystem, config)
    rest = [path for path in directories_of(config) if path not in formatted]
    if not rest:
        return
    try:
        for path in rest:
            _check_empty(filesystem, path)
    except OSError:
        if not formatted:
            raise
        # A broken disk of several: the others can be used.
        return
    if Path(config.metadata_directory) in rest:
        for path in formatted:
            _check_unused(filesystem, path, config)
    cluster_id = _cluster_id(filesystem, formatted) if formatted else None
    options = FormatOptions(
        cluster_id=cluster_id, standalone=True, ignore_formatted=bool(formatted)
    )
    format_node(filesystem, config, options, now_ms, host.chance)


def _check_unused(filesystem: FileSystem, path: Path, config: BrokerConfig) -> None:
    """The metadata log is gone. A new one would not know the logs in the other directories."""
    if not all(map(is_left_by_formatting, filesystem.list_directory(path))):
        raise ForeignDirectoryError(
            Path(config.metadata_directory),
            f"is not formatted, but {path} was used with it: the cluster's metadata is missing",
        )


def _refuse_unformatted(
    filesystem: FileSystem, unformatted: Iterable[Path], formatted: Iterable[Path]
) -> None:
    """A formatting was interrupted, a directory was added, or its disk is not mounted."""
    for path in sorted(unformatted):
        try:
            if filesystem.exists(path / META_PROPERTIES_FILE) or filesystem.exists(path):
                filesystem.list_directory(path)
        except OSError:
            # Its disk is broken, which is reported when it is opened.
            continue
        raise ForeignDirectoryError(
            path,
            f"is not formatted, but {min(formatted)} is; if no disk is missing, format it, too: "
            "add --ignore-formatted to the command that formatted the others",
        )


def _check_usable(
    config: BrokerConfig, opened: Container[Path], unavailable: Mapping[Path, str]
) -> None:
    """One broken disk of several does not prevent the start, unless the metadata depends on it."""
    metadata = Path(config.metadata_directory)
    if metadata in unavailable:
        raise MoldauError(f"{metadata} cannot be used: {unavailable[metadata]}")
    if not any(path in opened for path in _unique(config.directories)):
        raise MoldauError(f"no log directory can be used: {'; '.join(unavailable.values())}")
    for path, reason in unavailable.items():
        _log.error("log directory %s cannot be used: %s", path, reason)


def _restore_markers(directories: Iterable[LogDirectory]) -> None:
    """Opening the directories removed the markers of the last clean shutdown, which still hold."""
    for directory in directories:
        if directory.clean_stop_epoch is not None and directory.is_online:
            # Without a marker, the next start checks the logs.
            with contextlib.suppress(KafkaError):
                directory.mark_clean_stop(directory.clean_stop_epoch)


def _check_empty(filesystem: FileSystem, path: Path) -> None:
    """Files in an unformatted directory belong to another application, unless a formatting was
    interrupted.
    """
    if not filesystem.exists(path):
        return
    try:
        is_empty = all(map(is_left_by_formatting, filesystem.list_directory(path)))
    except NotADirectoryError:
        raise ForeignDirectoryError(
            path, "is a file, not a directory; choose another one with --dir"
        ) from None
    if not is_empty:
        raise ForeignDirectoryError(
            path, "holds files and is not a log directory; choose another one with --dir"
        )


def _cluster_id(filesystem: FileSystem, paths: Iterable[Path]) -> str:
    for path in paths:
        meta_path = path / META_PROPERTIES_FILE
        if filesystem.exists(meta_path):
            cluster_id = read_meta_properties(filesystem, meta_path).cluster_id
            if cluster_id:
                return cluster_id
    raise MoldauError(f"no {META_PROPERTIES_FILE} names the cluster of the directories")


def _unique(texts: Iterable[str]) -> list[Path]:
    return list(dict.fromkeys(Path(text) for text in texts))
