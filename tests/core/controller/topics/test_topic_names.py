import pytest

from moldau.core.controller.topics.topic_names import collision_key, is_internal, name_problem


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__consumer_offsets"])
def test_good_names(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a/b", "../../etc/passwd", "a\0b", "ü", "a b", "a\n"]
)
def test_bad_names(name: str) -> None:
    problem = name_problem(name)
    assert problem is not None
    assert problem.startswith("Topic name is invalid: ")


def test_dots_and_underscores_collide() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c")
    assert collision_key("a-b") != collision_key("a_b")


def test_the_metadata_log_is_not_a_topic_for_clients() -> None:
    assert is_internal("__transaction_state")
    assert not is_internal("__cluster_metadata")
