"""Settings that Moldau knows but must not pass over in silence: who relies on one of them would be
less safe than they think.
"""

from moldau.config.broker import BrokerConfig
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

_UNSUPPORTED = {
    "authorizer.class.name": "there is no authorizer yet, so that everybody could do everything",
    "alter.config.policy.class.name": "there are no policies yet",
    "create.topic.policy.class.name": "there are no policies yet",
    "client.quota.callback.class": "there are no quotas yet",
    "principal.builder.class": "there is only the default yet",
    "config.providers": "values are not looked up elsewhere yet",
    "remote.log.storage.system.enable": "there is no remote storage",
}


def refuse_unsupported(config: BrokerConfig) -> None:
    """Raises INVALID_CONFIG if a node should rather not start with these settings."""
    for name, reason in _UNSUPPORTED.items():
        setting = config.declared[name]
        value = getattr(config, setting.attribute)
        if value != setting.default and not (
            name == "authorizer.class.name" and _allows_everybody(config)
        ):
            text = f"{name}={setting.text(value)}: {reason}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)


def _allows_everybody(config: BrokerConfig) -> bool:
    """On listeners without authentication everybody is ANONYMOUS: no rule binds a super user."""
    return "User:ANONYMOUS" in config.given.get("super.users", "").split(";")
