"""The features that this release knows, and the levels of each that it can run at."""

from moldau.core.metadata.image import METADATA_VERSION
from moldau.core.metadata.levels import LATEST_RELEASED_LEVEL, OLDEST_LEVEL
from moldau.protocol.enums import FEATURES

SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    METADATA_VERSION: (OLDEST_LEVEL, LATEST_RELEASED_LEVEL),
    **{name: (levels[0].level, levels[-1].level) for name, levels in FEATURES.items()},
}
