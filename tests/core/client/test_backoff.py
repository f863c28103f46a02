"""Pauses of clients grow, are partly random, and have a maximum."""

from moldau.core.client.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(100, 1000)
    pauses = [backoff.pause_ms(failures, 0.5) for failures in (1, 2, 3, 4, 5, 10_000)]
    assert pauses == [100, 200, 400, 800, 1000, 1000]


def test_a_fifth_of_a_pause_is_random() -> None:
    backoff = Backoff(100, 1000)
    assert backoff.pause_ms(1, 0.0) == 80
    assert backoff.pause_ms(1, 1.0) == 120
    assert backoff.pause_ms(5, 1.0) == 1000


def test_a_pause_can_be_zero() -> None:
    assert Backoff(0, 0).pause_ms(7, 1.0) == 0
