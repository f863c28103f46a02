"""Unforeseen errors are logged, but not as often as a client can cause them."""

import logging

import pytest

from moldau.unexpected import apart, log_unexpected

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
