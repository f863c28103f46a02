"""The settings of a new topic in the response of CreateTopics. Unlike in DescribeConfigs, a broker
setting counts under all of its names.
"""

from collections.abc import Mapping

from moldau.config.broker import BrokerConfig
from moldau.config.describe import Source
from moldau.config.log import LogConfig
from moldau.config.values import HOUR_MS, MINUTE_MS
from moldau.protocol.messages.create_topics import CreatableTopicConfigs

_UNITS_MS = {"hours": HOUR_MS, "minutes": MINUTE_MS}
_DECLARED = sorted(LogConfig.declared.items())
_DEFAULTS = {name: declared.text(declared.default) for name, declared in _DECLARED}


class TopicDescription:
    """Describes many topics; the rows of broker settings are computed once and shared."""

    def __init__(self, config: BrokerConfig) -> None:
        self._of_broker = {
            name: _described(name, declared.synonyms, config) for name, declared in _DECLARED
        }
        self._plain = self._rows({})

    def of(self, own: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """Every setting in force, sorted by name. The rows are shared and must not be changed."""
        return self._rows(own) if own else self._plain

    def _rows(self, own: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        return [
            _row(name, own[name], Source.TOPIC) if name in own else self._of_broker[name]
            for name, declared in _DECLARED
            if name in own or not declared.is_internal
        ]


def _described(name: str, synonyms: tuple[str, ...], config: BrokerConfig) -> CreatableTopicConfigs:
    layers = config.layers
    for source, layer in (
        (Source.DYNAMIC_BROKER, layers.own),
        (Source.DYNAMIC_DEFAULT_BROKER, layers.cluster),
        (Source.STATIC_BROKER, layers.static),
    ):
        for synonym in synonyms:
            if synonym in layer:
                return _row(name, _in_ms(synonym, layer[synonym]), source)
    return _row(name, _DEFAULTS[name], Source.DEFAULT)


def _row(name: str, text: str | None, source: Source) -> CreatableTopicConfigs:
    # No topic setting is sensitive or read-only.
    return CreatableTopicConfigs(name=name, value=text, config_source=source)


def _in_ms(synonym: str, text: str) -> str:
    unit_ms = _UNITS_MS.get(synonym.rpartition(".")[2])
    return text if unit_ms is None else str(int(text) * unit_ms)
