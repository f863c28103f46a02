"""All settings of a node in one flat value: `config.num_partitions` is `num.partitions`. The
declarations are in broker_settings/, by theme; values derived from several settings are here.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Self

from moldau.config.addresses import Voter, voter
from moldau.config.broker_settings.cleaner import CleanerSettings
from moldau.config.broker_settings.groups import GroupSettings
from moldau.config.broker_settings.listeners import ListenerSettings
from moldau.config.broker_settings.logs import LogSettings
from moldau.config.broker_settings.oauth import OauthSettings
from moldau.config.broker_settings.own import MoldauSettings
from moldau.config.broker_settings.quorum import QuorumSettings
from moldau.config.broker_settings.remote import RemoteSettings
from moldau.config.broker_settings.replication import ReplicationSettings
from moldau.config.broker_settings.sasl import SaslSettings
from moldau.config.broker_settings.server import ServerSettings
from moldau.config.broker_settings.share import ShareSettings
from moldau.config.broker_settings.streams import StreamsSettings
from moldau.config.broker_settings.tls import TlsSettings
from moldau.config.broker_settings.transactions import TransactionSettings
from moldau.config.cross_checks import check_broker_config
from moldau.config.layers import Layers
from moldau.config.listeners import (
    WILDCARD_HOST,
    Listener,
    SecurityProtocol,
    parse_listeners,
    parse_protocol_map,
)
from moldau.config.schema import Setting, hint_for, refused
from moldau.config.values import HOUR_MS, MINUTE_MS
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

_OF_LISTENER = r"listener\.name\.([^.]+)\.(.+)"
_OF_MECHANISM = (
    r"[^.]+\.(sasl\.jaas\.config|sasl\.login\.callback\.handler\.class|sasl\.login\.class"
    r"|sasl\.server\.callback\.handler\.class|connections\.max\.reauth\.ms)"
)
# Settings that Kafka only passes to plugins.
_PLUGIN_NAMES = frozenset({"super.users", "allow.everyone.if.no.acl.found"})
_PLUGIN_PREFIXES = ("config.providers.", "metrics.context.", "metrics.jmx.")
# Settings that Kafka 4 removed.
_REMOVED_PREFIXES = ("zookeeper.", "password.encoder.")
_REMOVED_NAMES = frozenset(
    {
        "advertised.host.name",
        "advertised.port",
        "broker.id.generation.enable",
        "control.plane.listener.name",
        "delegation.token.master.key",
        "host.name",
        "inter.broker.protocol.version",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "log.message.timestamp.difference.max.ms",
        "offsets.commit.required.acks",
        "port",
        "auto.include.jmx.reporter",
        "reserved.broker.max.id",
    }
)


class BrokerConfig(
    QuorumSettings,
    ListenerSettings,
    LogSettings,
    CleanerSettings,
    ServerSettings,
    ReplicationSettings,
    GroupSettings,
    StreamsSettings,
    ShareSettings,
    TransactionSettings,
    SaslSettings,
    OauthSettings,
    TlsSettings,
    RemoteSettings,
    MoldauSettings,
):
    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> Self:
        """Raises INVALID_CONFIG for a bad value, a missing setting, or contradicting settings.
        Unknown names are kept; see `unknown`.
        """
        given = _with_node_id(properties)
        config = cls(**cls._values(given))
        config.__dict__["given"] = given
        _refuse_missing(given)
        check_broker_config(config)
        return config

    @classmethod
    def _values(cls, given: Mapping[str, str]) -> dict[str, Any]:
        values = {}
        for name, text in given.items():
            declared = cls.declared.get(name)
            if declared is not None:
                values[declared.attribute] = declared.parse(text)
            elif (overridden := cls.overridden(name)) is not None:
                overridden.parse(text)
        return values

    @classmethod
    def overridden(cls, name: str) -> Setting | None:
        """The setting that `listener.name.<listener>.[<mechanism>.]<setting>` overrides."""
        match = re.fullmatch(_OF_LISTENER, name)
        if match is None:
            return None
        of_mechanism = re.fullmatch(_OF_MECHANISM, match[2])
        return cls.declared.get(of_mechanism[1] if of_mechanism else match[2])

    @cached_property
    def given(self) -> Mapping[str, str]:
        """The parsed properties. Empty if the values were not parsed."""
        return {}

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """Names in the properties that are not settings of a broker."""
        return self.unknown_among(self.given)

    @classmethod
    def unknown_among(cls, properties: Mapping[str, str]) -> tuple[str, ...]:
        """Names that are not settings of a broker: those of a plugin or vendor, removed ones, and
        typos.
        """
        prefixes = _plugin_prefixes(properties)
        return tuple(
            name
            for name in properties
            if name not in cls.declared
            and cls.overridden(name) is None
            and name not in _PLUGIN_NAMES
            and not name.startswith(prefixes)
        )

    def refuse_unknown(self, names: Iterable[str] | None = None) -> None:
        """Raises INVALID_CONFIG if some of these names, or of all names, are unknown."""
        unknown = [name for name in self.unknown if names is None or name in names]
        if unknown:
            raise refused("; ".join(map(self.unknown_complaint, unknown)))

    @classmethod
    def unknown_complaint(cls, name: str) -> str:
        """One line, with a suggestion."""
        removed = "; Kafka 4 has removed it" if _is_removed(name) else ""
        return f"{name}: unknown setting{removed or hint_for(name, cls.declared)}"

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The settings in the properties that Moldau knows, but that have no effect yet."""
        known = {name: self.declared.get(name) or self.overridden(name) for name in self.given}
        return tuple(
            name
            for name, setting in known.items()
            if name not in self.unknown and (setting is None or not setting.has_effect)
        )

    @cached_property
    def layers(self) -> Layers:
        """The layers that the values come from."""
        return Layers(self.given)

    def of_listener(self, listener: str, name: str) -> Any:
        """A setting's value for one listener: its own, or the general one."""
        declared = self.declared[name]
        own = self.given.get(f"listener.name.{listener.lower()}.{name}")
        return getattr(self, declared.attribute) if own is None else declared.parse(own)

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @cached_property
    def directories(self) -> tuple[str, ...]:
        return self.log_dir if self.log_dirs is None else self.log_dirs

    @cached_property
    def metadata_directory(self) -> str:
        return self.metadata_log_dir or self.directories[0]

    @cached_property
    def voters(self) -> tuple[Voter, ...]:
        return tuple(found for text in self.controller_quorum_voters if (found := voter(text)))

    @cached_property
    def security_protocols(self) -> Mapping[str, SecurityProtocol]:
        """Security protocols by listener name. By default a controller listener is PLAINTEXT if no
        other listener is secured.
        """
        protocols = parse_protocol_map(self.listener_security_protocol_map)
        names = self.controller_names
        used = {*names, *(text.partition(":")[0].upper() for text in self.listeners)}
        secured = {"SSL", "SASL_PLAINTEXT", "SASL_SSL"}
        if "listener.security.protocol.map" not in self.given and not used & secured:
            protocols |= dict.fromkeys(names, SecurityProtocol.PLAINTEXT)
        return protocols

    @cached_property
    def bound_listeners(self) -> tuple[Listener, ...]:
        """All listeners of this node."""
        return parse_listeners("listeners", self.listeners, self.security_protocols)

    @property
    def controller_names(self) -> tuple[str, ...]:
        return tuple(name.upper() for name in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        return tuple(each for each in self.bound_listeners if each.name in self.controller_names)

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        return tuple(
            each for each in self.bound_listeners if each.name not in self.controller_names
        )

    @cached_property
    def _advertised(self) -> tuple[Listener, ...]:
        texts = self.advertised_listeners or ()
        return parse_listeners("advertised.listeners", texts, self.security_protocols)

    @property
    def advertised_broker_listeners(self) -> tuple[Listener, ...]:
        """The addresses for clients. The node fills in empty hosts."""
        listeners = self.bound_listeners if self.advertised_listeners is None else self._advertised
        return tuple(each for each in listeners if each.name not in self.controller_names)

    @cached_property
    def advertised_controller_listeners(self) -> tuple[Listener, ...]:
        """In the order of controller.listener.names. The node fills in empty hosts."""
        advertised = {each.name: each for each in self._advertised}
        bound = {each.name: each for each in self.bound_listeners}
        found = []
        for position, name in enumerate(self.controller_names):
            if name in advertised:
                found.append(advertised[name])
            elif name in bound:
                found.append(self._reachable(bound[name], is_first=position == 0))
        return tuple(found)

    def _reachable(self, listener: Listener, *, is_first: bool) -> Listener:
        """The listener; if it has no address of its own, with this node's address in the list of
        voters.
        """
        if listener.host not in {"", WILDCARD_HOST}:
            return listener
        for each in self.voters if is_first else ():
            if each.node_id == self.node_id:
                return listener._replace(host=each.host, port=each.port)
        return listener._replace(host="")

    @cached_property
    def inter_broker_name(self) -> str:
        """The name of the listener between brokers."""
        if self.inter_broker_listener_name is None:
            return self.security_inter_broker_protocol
        if "security.inter.broker.protocol" in self.given:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "only one of inter.broker.listener.name and security.inter.broker.protocol "
                "can be given",
            )
        return self.inter_broker_listener_name.upper()

    @cached_property
    def connection_limits_by_host(self) -> Mapping[str, int]:
        """max.connections.per.ip.overrides, parsed."""
        limits = {}
        for entry in filter(None, self.max_connections_per_ip_overrides.split(",")):
            host, _, count = entry.strip().rpartition(":")
            if not host.strip() or not count.strip().isdecimal():
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"max.connections.per.ip.overrides: {entry!r} is not address:count",
                )
            limits[host.strip().strip("[]")] = int(count)
        return limits

    @property
    def retention_ms(self) -> int:
        if self.log_retention_ms is not None:
            kept_ms = self.log_retention_ms
        elif self.log_retention_minutes is not None:
            kept_ms = self.log_retention_minutes * MINUTE_MS
        else:
            kept_ms = self.log_retention_hours * HOUR_MS
        return max(kept_ms, -1)

    @property
    def roll_ms(self) -> int:
        return self.log_roll_hours * HOUR_MS if self.log_roll_ms is None else self.log_roll_ms

    @property
    def roll_jitter_ms(self) -> int:
        jitter_ms = self.log_roll_jitter_ms
        return self.log_roll_jitter_hours * HOUR_MS if jitter_ms is None else jitter_ms

    @property
    def flush_ms(self) -> int:
        interval_ms = self.log_flush_interval_ms
        return self.log_flush_scheduler_interval_ms if interval_ms is None else interval_ms


def _with_node_id(properties: Mapping[str, str]) -> dict[str, str]:
    """Sets node.id from its older name broker.id."""
    given = dict(properties)
    if "node.id" in given:
        given.setdefault("broker.id", given["node.id"])
    elif "broker.id" in given:
        given["node.id"] = given["broker.id"]
    return given


def _refuse_missing(given: Mapping[str, str]) -> None:
    required = [each.name for each in BrokerConfig.declared.values() if each.is_required]
    # A file without roles belongs to Kafka 3, or is not a broker's configuration at all.
    required.sort(key=lambda name: name != "process.roles")
    missing = next((name for name in required if name not in given), None)
    if missing is None:
        return
    complaint = f'Missing required configuration "{missing}" which has no default value.'
    if any(name.startswith("zookeeper.") for name in given):
        complaint += (
            " A file with zookeeper.* settings is for Kafka 3 with ZooKeeper: a node of Kafka 4 "
            "needs process.roles and the settings of its controllers instead"
        )
    raise KafkaError(ErrorCode.INVALID_CONFIG, complaint)


def _is_removed(name: str) -> bool:
    return name in _REMOVED_NAMES or name.startswith(_REMOVED_PREFIXES)


def _plugin_prefixes(given: Mapping[str, str]) -> tuple[str, ...]:
    remote = (
        given.get(name, str(RemoteSettings.declared[name].default)).strip()
        for name in (
            "remote.log.storage.manager.impl.prefix",
            "remote.log.metadata.manager.impl.prefix",
        )
    )
    return (*_PLUGIN_PREFIXES, *(prefix for prefix in remote if prefix))
