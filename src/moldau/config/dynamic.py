"""Settings of brokers that change at run time: what may change where, and what is then in force."""

import re
from collections.abc import Mapping

from moldau.config.broker import BrokerConfig
from moldau.config.broker_settings.throttles import ThrottleSettings
from moldau.config.layers import Layers, merged
from moldau.config.schema import Setting, UpdateMode, unknown_setting
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
_THREADS = (
    "background.threads",
    "log.cleaner.threads",
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


def layered_config(layers: Layers) -> BrokerConfig:
    """What is in force. Raises INVALID_CONFIG if the layers do not fit together."""
    properties = merged(layers)
    for name in ThrottleSettings.declared:
        properties.pop(name, None)
    config = BrokerConfig.parse(properties | _clamped(properties, layers))
    config.__dict__["layers"] = layers
    return config


def _clamped(properties: Mapping[str, str], layers: Layers) -> dict[str, str]:
    """Intervals that are valid by themselves but not within this broker's bounds."""
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


def check_dynamic(name: str, text: str, *, for_all: bool) -> None:
    """Raises INVALID_CONFIG if a setting can not have this value at run time, for all brokers or
    for one.
    """
    of_listener = BrokerConfig.overridden(name)
    setting = of_listener or DYNAMIC_SETTINGS.get(name)
    if setting is None:
        if name in BrokerConfig.declared:
            raise _refused(f"{name} can not be changed at run time")
        raise unknown_setting(name, DYNAMIC_SETTINGS)
    if of_listener is None and name in _KEYS_AND_CERTIFICATES:
        raise _refused(f"{name} can be changed only for a listener: listener.name.<name>.{name}")
    reaches_all = (
        setting.name in _LIMITS_OF_LISTENERS
        if of_listener
        else setting.mode is UpdateMode.CLUSTER_WIDE
    )
    if for_all and not reaches_all:
        raise _refused(f"{name} can be changed only for one broker")
    setting.parse(text)


def usable(
    properties: Mapping[str, str], *, for_all: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """What of a stored layer can be used, and why the rest can not."""
    good, bad = {}, {}
    for name, text in properties.items():
        try:
            check_dynamic(name, text, for_all=for_all)
            good[name] = text
        except KafkaError as error:
            bad[name] = error.detail
    return good, bad


def check_broker_change(layers: Layers, current: BrokerConfig, *, for_all: bool) -> BrokerConfig:
    """What would be in force. Raises if the last changed layer, `own` or `cluster`, can not be:
    Kafka's code for it is INVALID_REQUEST.
    """
    changed = layers.cluster if for_all else layers.own
    try:
        for name, text in changed.items():
            check_dynamic(name, text, for_all=for_all)
        new = layered_config(layers)
        _check_threads(new, current)
        _check_listeners(new, current)
    except KafkaError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, error.detail) from None
    return new


def _refused(complaint: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, complaint)


def _check_threads(new: BrokerConfig, current: BrokerConfig) -> None:
    """Kafka resizes pools only gently."""
    for name in _THREADS:
        attribute = BrokerConfig.declared[name].attribute
        count, before = getattr(new, attribute), getattr(current, attribute)
        if count != before and not max(before // 2, 1) <= count <= before * 2:
            raise _refused(f"{name}={count} must be between half and double of {before}")


def _check_listeners(new: BrokerConfig, current: BrokerConfig) -> None:
    names = {listener.name for listener in new.bound_listeners}
    for listener in current.bound_listeners:
        if listener.name not in names:
            continue
        if new.security_protocols[listener.name] is not listener.security_protocol:
            raise _refused(f"listener.security.protocol.map: {listener.name} is in use")
        if _fixed(new, listener.name) != _fixed(current, listener.name):
            raise _refused(
                f"listener.name.{listener.name.lower()}.*: only keys, certificates and limits of a "
                "listener in use can be changed"
            )


def _fixed(config: BrokerConfig, listener: str) -> dict[str, str]:
    prefix = f"listener.name.{listener.lower()}."
    changeable = _KEYS_AND_CERTIFICATES | _LIMITS_OF_LISTENERS
    return {
        name: text
        for name, text in config.given.items()
        if name.startswith(prefix) and re.sub(_OF_LISTENER, "", name) not in changeable
    }
