"""Broker settings that change at run time: which of them may change, at which level, and the
resulting settings.
"""

import re
from collections.abc import Iterable, Mapping

from moldau.config.broker import BrokerConfig
from moldau.config.broker_settings.throttles import ThrottleSettings
from moldau.config.layers import Layers, merged
from moldau.config.schema import Setting, UpdateMode, refused
from moldau.config.values import java_set
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

DYNAMIC_SETTINGS: dict[str, Setting] = ThrottleSettings.declared | {
    name: declared
    for name, declared in BrokerConfig.declared.items()
    if declared.mode is not UpdateMode.READ_ONLY
}
_KEYS_AND_CERTIFICATES = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
_LIMITS_OF_LISTENERS = frozenset(
    {"max.connections", "max.connection.creation.rate", "num.network.threads"}
)
_OF_ALL_LISTENERS = _LIMITS_OF_LISTENERS | {
    name for name, declared in DYNAMIC_SETTINGS.items() if declared.mode is UpdateMode.PER_BROKER
}
_THREADS = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
_CLAMPED = (
    "group.consumer.assignment.interval.ms",
    "group.share.assignment.interval.ms",
    "group.streams.assignment.interval.ms",
)
_OF_LISTENER = r"listener\.name\.[^.]+\."


def layered_config(layers: Layers, *, clamps: bool = True) -> BrokerConfig:
    """The settings in force. Raises INVALID_CONFIG if the layers contradict each other."""
    properties = merged(layers)
    for name in ThrottleSettings.declared:
        properties.pop(name, None)
    clamped = _clamped(properties, layers) if clamps else {}
    config = BrokerConfig.parse(properties | clamped)
    config.__dict__["layers"] = layers
    return config


def _clamped(properties: Mapping[str, str], layers: Layers) -> dict[str, str]:
    """Intervals that are valid on their own, limited to this broker's bounds."""
    clamped = {}
    for name in _CLAMPED:
        if name in layers.cluster or name in layers.own:
            kind = name.split(".")[1]
            low, high = (
                BrokerConfig.declared[f"group.{kind}.{end}.assignment.interval.ms"]
                for end in ("min", "max")
            )
            value = BrokerConfig.declared[name].parse(properties[name])
            smallest, largest = (
                bound.parse(properties[bound.name]) if bound.name in properties else bound.default
                for bound in (low, high)
            )
            clamped[name] = str(min(max(value, smallest), largest))
    return clamped


def usable(
    properties: Mapping[str, str], *, for_all: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """The usable settings of a stored layer, and the reasons against the others."""
    good, bad = {}, {}
    for name, text in properties.items():
        try:
            check_dynamic({name: text}, for_all=for_all)
            good[name] = text
        except KafkaError as error:
            bad[name] = error.detail
    return good, bad


def check_dynamic(properties: Mapping[str, str], *, for_all: bool) -> None:
    """Raises INVALID_CONFIG if settings cannot get these values at run time, for all brokers or for
    one. Unknown names are accepted, as in Kafka: they may belong to plugins.
    """
    known = BrokerConfig.declared
    _refuse(
        "Cannot update these configs dynamically",
        (name for name in properties if name in known and name not in DYNAMIC_SETTINGS),
    )
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener "
        "prefix",
        (name for name in properties if name in _KEYS_AND_CERTIFICATES),
    )
    for name, text in properties.items():
        setting = BrokerConfig.overridden(name) or DYNAMIC_SETTINGS.get(name)
        if setting is not None:
            setting.parse(text)
    if for_all:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            filter(_is_of_one_broker, properties),
        )


def _is_of_one_broker(name: str) -> bool:
    setting = DYNAMIC_SETTINGS.get(name)
    if setting is not None:
        return setting.mode is not UpdateMode.CLUSTER_WIDE
    of_listener = re.match(_OF_LISTENER, name)
    return of_listener is not None and name[of_listener.end() :] not in _LIMITS_OF_LISTENERS


def _refuse(complaint: str, names: Iterable[str]) -> None:
    found = java_set(names)
    if found:
        raise refused(f"{complaint}: [{', '.join(found)}]")


def check_broker_change(layers: Layers, current: BrokerConfig, *, for_all: bool) -> BrokerConfig:
    """The settings in force after the change. Raises INVALID_REQUEST, as Kafka does, if the changed
    layer (`own` or `cluster`) is not valid.
    """
    try:
        check_dynamic(layers.cluster if for_all else layers.own, for_all=for_all)
        new = layered_config(layers, clamps=False)
    except KafkaError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, error.detail) from None
    complaint = _thread_complaint(new, current) or _listener_complaint(new, current)
    if complaint is not None:
        # Kafka's message has the cause in place of the value.
        cause = f"org.apache.kafka.common.config.ConfigException: {complaint}"
        detail = f"Invalid value {cause} for configuration Invalid dynamic configuration"
        raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
    return layered_config(layers)


def _thread_complaint(new: BrokerConfig, current: BrokerConfig) -> str | None:
    """Kafka limits the change of a pool's size to a factor of two."""
    for name in _THREADS:
        attribute = BrokerConfig.declared[name].attribute
        count, before = getattr(new, attribute), getattr(current, attribute)
        failed = f"Dynamic thread count update validation failed for {name}={count}, value should"
        if count < before // 2:
            return f"{failed} be at least half the current value {before}"
        if count > before * 2:
            return f"{failed} not be greater than double the current value {before}"
    return _cleaner_complaint(new.log_cleaner_threads, current.log_cleaner_threads)


def _cleaner_complaint(count: int, before: int) -> str | None:
    if count < 1:
        return "Log cleaner threads should be at least 1"
    if count < before // 2:
        return f"Log cleaner threads cannot be reduced to less than half the current value {before}"
    if count > before * 2:
        return (
            "Log cleaner threads cannot be increased to more than double the current value "
            f"{before}"
        )
    return None


def _listener_complaint(new: BrokerConfig, current: BrokerConfig) -> str | None:
    """As in Kafka, only checked if a setting of all listeners has changed."""
    if not any(new.given.get(name) != current.given.get(name) for name in _OF_ALL_LISTENERS):
        return None
    names = {listener.name for listener in new.bound_listeners}
    for listener in current.bound_listeners:
        if listener.name not in names:
            continue
        if new.security_protocols[listener.name] is not listener.security_protocol:
            return (
                "Security protocol cannot be updated for existing listener "
                f"ListenerName({listener.name})"
            )
        if _fixed(new, listener.name) != _fixed(current, listener.name):
            return (
                "Configs cannot be updated dynamically for existing listener "
                f"ListenerName({listener.name}), restart broker or create a new listener for update"
            )
    return None


def _fixed(config: BrokerConfig, listener: str) -> dict[str, str]:
    prefix = f"listener.name.{listener.lower()}."
    changeable = _KEYS_AND_CERTIFICATES | _LIMITS_OF_LISTENERS
    return {
        name: text
        for name, text in config.given.items()
        if name.startswith(prefix) and re.sub(_OF_LISTENER, "", name) not in changeable
    }
