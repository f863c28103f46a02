"""Unforeseen errors are logged, but not as often as a client can cause them."""

import logging

import pytest

from moldau.unexpected import Attempts, apart, log_unexpected

_log = logging.getLogger("tests.unexpected")


def raises(error: Exception) -> None:
    raise error


def test_a_kind_of_error_is_logged_once_in_an_interval(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(100):
        apart(_log, "one", raises, ValueError("x"))
    apart(_log, "one", raises, KeyError("y"))
    log_unexpected(_log, "other", ValueError("z"))
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [
        ValueError,
        KeyError,
        ValueError,
    ]


def test_attempts_are_all_made_and_the_first_error_is_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made: list[int] = []
    attempts = Attempts(_log, "an attempt")
    attempts.make(made.append, 1)
    attempts.make(raises, ValueError("first"))
    attempts.make(made.append, 2)
    attempts.make(raises, KeyError("second"))
    attempts.make(made.append, 3)
    with pytest.raises(ValueError, match="first"):
        attempts.end()
    assert made == [1, 2, 3]
    assert "an attempt failed unexpectedly" in caplog.text
