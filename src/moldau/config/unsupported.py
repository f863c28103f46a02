"""Settings that Moldau does not support and must not ignore silently, because a node without them
would be less safe than its operator expects.
"""

from moldau.config.broker import BrokerConfig
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

_UNSUPPORTED = {
    "authorizer.class.name": "there is no authorizer yet, so every client could do everything",
    "alter.config.policy.class.name": "there are no policies yet",
    "create.topic.policy.class.name": "there are no policies yet",
    "client.quota.callback.class": "there are no quotas yet",
    "principal.builder.class": "there is only the default so far",
    "config.providers": "values are not read from providers yet",
    "remote.log.storage.system.enable": "there is no remote storage",
}


def refuse_unsupported(config: BrokerConfig) -> None:
    """Raises INVALID_CONFIG if a node must not start with these settings."""
    for name, reason in _UNSUPPORTED.items():
        setting = config.declared[name]
        value = getattr(config, setting.attribute)
        if value != setting.default and not (
            name == "authorizer.class.name" and _allows_everything(config)
        ):
            text = f"{name}={setting.text(value)}: {reason}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)


def _allows_everything(config: BrokerConfig) -> bool:
    """Without authentication every client is User:ANONYMOUS: as super user it may do everything."""
    return "User:ANONYMOUS" in config.given.get("super.users", "").split(";")
