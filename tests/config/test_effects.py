"""`has_effect` of each setting agrees with the source. Tests that are marked with `@proves` observe
the effect itself.
"""

from config.effects import obeyed_settings, read_by_clients

from moldau.config.broker import BrokerConfig
from moldau.config.client_settings.admin import AdminConfig
from moldau.config.client_settings.consumer import ConsumerConfig
from moldau.config.client_settings.producer import ProducerConfig
from moldau.config.group import GroupConfig
from moldau.config.log import LogConfig


def test_settings_declare_whether_they_have_an_effect() -> None:
    """If this fails: add `has_effect=True` to a setting that code reads now, or remove it from one
    that no code reads any more, and run `make protocol`. A setting with an effect needs a test that
    observes it: `tests/support/proofs.py`.
    """
    for declared, obeyed in zip(
        (BrokerConfig.declared, LogConfig.declared, GroupConfig.declared),
        obeyed_settings(),
        strict=True,
    ):
        claimed = {name for name, setting in declared.items() if setting.has_effect}
        assert claimed - obeyed == set(), "these claim an effect, but nothing reads them"
        assert obeyed - claimed == set(), "these are read, but claim to have no effect"


def test_settings_of_clients_declare_whether_they_have_an_effect() -> None:
    read = read_by_clients()
    for config in (ProducerConfig, ConsumerConfig, AdminConfig):
        for name, setting in config.declared.items():
            assert setting.has_effect == (setting.attribute in read), name
