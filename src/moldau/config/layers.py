"""Where a broker's settings come from. What is set for one broker comes before what is set for all
of them, and that before its properties.
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


# Names of one thing; one that stands earlier counts first.
_SYNONYMS = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_SYNONYMS_OF = {name: names for names in _SYNONYMS for name in names} | {
    # The scheduler's interval is only a default, so that it has no synonym itself.
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}


def broker_synonyms(name: str) -> tuple[str, ...]:
    """Names that mean the same, those that count first come first; at least the name itself."""
    return _SYNONYMS_OF.get(name, (name,))


def merged(layers: Layers) -> dict[str, str]:
    """All layers in one. A synonym in a higher layer hides the others in a lower one."""
    properties = dict(layers.static)
    for layer in (layers.cluster, layers.own):
        for name, text in layer.items():
            for synonym in broker_synonyms(name):
                properties.pop(synonym, None)
            properties[name] = text
    return properties
