"""Feature levels of a new cluster: requested ones, and the release's defaults for the others."""

from collections.abc import Mapping

from moldau.core.metadata.image import KRAFT_VERSION, METADATA_VERSION
from moldau.core.metadata.levels import LATEST_RELEASED_LEVEL, LEVELS, NEWEST_LEVEL, OLDEST_LEVEL
from moldau.protocol.enums import FEATURES, METADATA_VERSIONS
from moldau.protocol.errors import MoldauError
from moldau.protocol.log_records import FeatureLevelRecord

_NAMES = {level: name for name, level in LEVELS.items()}
# "4.3" is the last level of that release, once it is stable.
_RELEASES = {
    version.name.partition("-")[0]: version.level
    for version in METADATA_VERSIONS
    if version.level <= LATEST_RELEASED_LEVEL
}


class FeatureError(MoldauError):
    """The requested release or feature level is not possible."""


def release_level(text: str, *, allow_unstable: bool = False) -> int:
    """The level of metadata.version of a release such as 4.3, 4.3.1 or 4.3-IV0."""
    release = ".".join(text.split(".")[:2])
    level = LEVELS.get(release, _RELEASES.get(release))
    newest = NEWEST_LEVEL if allow_unstable else LATEST_RELEASED_LEVEL
    if level is None or level > newest:
        known = ", ".join(name for name, number in LEVELS.items() if number <= newest)
        raise FeatureError(f"unknown release version {text!r}: known are {known}")
    return level


def level_name(level: int) -> str:
    return _NAMES[level]


def parse_feature(text: str) -> tuple[str, int]:
    """`name=level`"""
    name, equals, level = text.partition("=")
    if not equals or not level.strip().isdecimal() or not level.strip().isascii():
        raise FeatureError(f"{text!r} is not FEATURE=LEVEL")
    return name.strip(), int(level)


def starting_levels(
    release: int | None,
    requested: Mapping[str, int],
    *,
    has_dynamic_quorum: bool,
    allow_unstable: bool = False,
) -> dict[str, int]:
    """The levels of all features by name, including metadata.version and kraft.version."""
    levels = dict(requested)
    newest = NEWEST_LEVEL if allow_unstable else LATEST_RELEASED_LEVEL
    if METADATA_VERSION in levels:
        if release is not None:
            raise FeatureError(f"give the release version or {METADATA_VERSION}, not both")
        release = levels[METADATA_VERSION]
        if not OLDEST_LEVEL <= release <= newest:
            raise FeatureError(
                f"{METADATA_VERSION} {release} is not supported: {OLDEST_LEVEL} to {newest} are"
            )
    levels[METADATA_VERSION] = newest if release is None else release
    for name in levels:
        if name != METADATA_VERSION and name not in FEATURES:
            raise FeatureError(f"unknown feature {name!r}: known are {', '.join(sorted(FEATURES))}")
    for name in FEATURES:
        if name != KRAFT_VERSION:
            levels.setdefault(name, _default_level(name, levels[METADATA_VERSION]))
    levels[KRAFT_VERSION] = _kraft_level(levels.get(KRAFT_VERSION), has_dynamic_quorum)
    for name in FEATURES:
        _check_level(name, levels)
    return dict(sorted(levels.items()))


def feature_records(levels: Mapping[str, int]) -> list[FeatureLevelRecord]:
    """metadata.version comes first. Features at 0 and the quorum's kraft.version have no record."""
    first = FeatureLevelRecord(name=METADATA_VERSION, feature_level=levels[METADATA_VERSION])
    others = [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in sorted(levels.items())
        if name not in {METADATA_VERSION, KRAFT_VERSION} and level > 0
    ]
    return [first, *others]


def _default_level(name: str, release: int) -> int:
    return max(
        each.level
        for each in FEATURES[name]
        if LEVELS[each.default_from_metadata_version] <= release or each.level == 0
    )


def _kraft_level(requested: int | None, has_dynamic_quorum: bool) -> int:
    """Static voters from controller.quorum.voters require level 0, dynamic ones level 1."""
    needed = int(has_dynamic_quorum)
    if requested is not None and (requested > 0) is not has_dynamic_quorum:
        raise FeatureError(
            f"{KRAFT_VERSION}={requested} is not possible "
            + (
                "without controller.quorum.voters: leave it out"
                if has_dynamic_quorum
                else "with controller.quorum.voters: remove that setting"
            )
        )
    return needed if requested is None else requested


def _check_level(name: str, levels: Mapping[str, int]) -> None:
    level = levels[name]
    found = next((each for each in FEATURES[name] if each.level == level), None)
    if found is None:
        known = ", ".join(str(each.level) for each in FEATURES[name])
        raise FeatureError(f"feature {name} has no level {level}: {known}")
    for needed, least in found.needs:
        if levels.get(needed, 0) < least:
            raise FeatureError(f"{name}={level} needs {needed} of {least} or more")
