"""Feature levels of a new cluster."""

import pytest

from moldau.core.metadata.starting_features import (
    FeatureError,
    feature_records,
    level_name,
    parse_feature,
    release_level,
    starting_levels,
)


def test_the_default_is_the_newest_release() -> None:
    levels = starting_levels(None, {}, has_dynamic_quorum=True)
    assert levels == {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "kraft.version": 1,
        "metadata.version": 30,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }
    assert [(each.name, each.feature_level) for each in feature_records(levels)] == [
        ("metadata.version", 30),
        ("eligible.leader.replicas.version", 1),
        ("group.version", 1),
        ("share.version", 1),
        ("streams.version", 1),
        ("transaction.version", 2),
    ]


def test_an_older_release_has_fewer_features() -> None:
    levels = starting_levels(release_level("3.9"), {}, has_dynamic_quorum=False)
    assert levels["metadata.version"] == 21
    assert {name for name, level in levels.items() if level} == {"metadata.version"}


def test_a_feature_may_be_chosen() -> None:
    levels = starting_levels(None, {"share.version": 0}, has_dynamic_quorum=True)
    assert levels["share.version"] == 0
    assert levels["group.version"] == 1
    older = starting_levels(None, {"metadata.version": 25}, has_dynamic_quorum=True)
    assert (older["metadata.version"], older["transaction.version"]) == (25, 2)
    assert older["share.version"] == 0


@pytest.mark.parametrize(
    ("text", "level"), [("4.3", 30), ("4.3.1", 30), ("4.3-IV0", 30), ("4.0", 25), ("3.3", 7)]
)
def test_releases_have_names(text: str, level: int) -> None:
    assert release_level(text) == level


def test_unstable_levels_need_permission() -> None:
    with pytest.raises(FeatureError):
        release_level("4.4-IV0")
    assert release_level("4.4-IV0", allow_unstable=True) == 31
    assert level_name(31) == "4.4-IV0"


@pytest.mark.parametrize(
    ("release", "asked_for", "dynamic", "complaint"),
    [
        (None, {"colour.version": 1}, True, "unknown feature 'colour.version'"),
        (None, {"group.version": 7}, True, "group.version has no level 7"),
        (30, {"metadata.version": 30}, True, "not both"),
        (None, {"metadata.version": 31}, True, "7 to 30"),
        (None, {"metadata.version": 6}, True, "7 to 30"),
        (22, {"eligible.leader.replicas.version": 1}, True, "needs metadata.version of 23"),
        (None, {"kraft.version": 0}, True, "kraft.version=0"),
        (None, {"kraft.version": 1}, False, "remove that setting"),
    ],
)
def test_contradicting_levels_are_refused(
    release: int | None, asked_for: dict[str, int], dynamic: bool, complaint: str
) -> None:
    with pytest.raises(FeatureError) as caught:
        starting_levels(release, asked_for, has_dynamic_quorum=dynamic)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("text", ["group.version", "group.version=", "group.version=x", "a=-1"])
def test_a_feature_is_a_name_and_a_level(text: str) -> None:
    assert parse_feature(" group.version = 1 ") == ("group.version", 1)
    with pytest.raises(FeatureError):
        parse_feature(text)


def test_a_new_cluster_may_start_with_an_unstable_level_if_allowed() -> None:
    """As in Kafka, only under the level's full name: there is no release of it yet."""
    levels = starting_levels(None, {}, has_dynamic_quorum=True, allow_unstable=True)
    assert levels["metadata.version"] == release_level("4.4-IV0", allow_unstable=True) == 31
    with pytest.raises(FeatureError, match=r"unknown release version '4\.4'"):
        release_level("4.4", allow_unstable=True)
