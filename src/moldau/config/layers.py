"""The layers of a broker's settings. A value for one broker has priority over one for all brokers,
which has priority over the properties file.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Layers(NamedTuple):
    """Text values by name."""

    static: Mapping[str, str]
    cluster: Mapping[str, str] = {}
    """Set at run time for all brokers."""
    own: Mapping[str, str] = {}
    """Set at run time for this broker."""


# Names of the same setting, in order of priority.
_SYNONYMS = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_SYNONYMS_OF = {name: names for names in _SYNONYMS for name in names} | {
    # The scheduler's interval is only a default, so it has no synonyms itself.
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}


def broker_synonyms(name: str) -> tuple[str, ...]:
    """All names of the setting in order of priority, including the name itself."""
    return _SYNONYMS_OF.get(name, (name,))


def merged(layers: Layers) -> dict[str, str]:
    """All layers in one. A synonym in a higher layer hides those in lower ones."""
    properties = dict(layers.static)
    for layer in (layers.cluster, layers.own):
        for name, text in layer.items():
            for synonym in broker_synonyms(name):
                properties.pop(synonym, None)
            properties[name] = text
    return properties
