"""The line of Spark's error about a failed batch that helps the user."""

from pathlib import Path

import pytest

import moldau
from moldau.protocol.errors import MoldauError
from moldau.spark.runtime.spark_errors import cause_of, in_one_line
from moldau.spark.runtime.task_errors import first_line, is_caused_by_a_row, is_repeatable

PROXY = """\
An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "clientserver.py", line 641, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"""
QUERY = """
=== Streaming Query ===
Identifier: shop.orders [id = 1, runId = 2]
Logical Plan:
~Project [raised AS Traceback (most recent call last):]
Error: this is of the plan
"""
CAPTURED = "pyspark.errors.exceptions.captured"
TOLD = {
    "orders.py:9: in clean: ValueError: no such user: a: b": f"""{PROXY}\
{CAPTURED}.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "orders.py", line 9, in clean
    raise ValueError("no such user")
  File "/opt/venv/lib/python3.11/site-packages/numpy/core.py", line 400, in sqrt
ValueError: no such user: a: b
{QUERY}""",
    "orders.py:7: [CAST_INVALID_INPUT] The value 'u1' cannot be cast": f"""{PROXY}\
{CAPTURED}.NumberFormatException: [CAST_INVALID_INPUT] The value 'u1' cannot be cast SQLSTATE: 22018
== DataFrame ==
"cast" was called from
orders.py:7
{QUERY}""",
    "orders-0: records from 4 to 9 cannot be read": f"""{PROXY}\
moldau.core.spark.errors.DataLossError: orders-0: records from 4 to 9 cannot be read
{QUERY}""",
    "record orders-0 offset 1: no json": f"""{PROXY}\
{CAPTURED}.X: [USER_RAISED_EXCEPTION] record orders-0 offset 1: no json SQLSTATE: P0001
{QUERY}""",
    "[STREAM_FAILED] it failed": f"[STREAM_FAILED] it failed SQLSTATE: XXKST{QUERY}",
}


@pytest.mark.parametrize("told", TOLD)
def test_the_cause_is_reported(told: str) -> None:
    assert cause_of(RuntimeError(TOLD[told])) == told


def test_the_root_cause_is_added_to_messages_without_information() -> None:
    failure = RuntimeError("Task not serializable")
    failure._cause = RuntimeError("Task not serializable")  # type: ignore[attr-defined]
    failure._cause._cause = ValueError("illegal size 5")  # type: ignore[attr-defined]
    told = "RuntimeError: Task not serializable, because of ValueError: illegal size 5"
    assert cause_of(failure) == told


def test_for_a_call_into_the_jvm_the_line_with_the_exception_is_reported() -> None:
    failure = RuntimeError(
        "An error occurred while calling o12.collect.\n: java.io.IOException: full"
    )
    assert first_line(failure) == "java.io.IOException: full"


def test_for_a_call_in_a_batch_the_same_line_is_reported() -> None:
    failure = RuntimeError(
        "Traceback (most recent call last):\n"
        '  File "/lib/python3.13/site-packages/py4j/protocol.py", line 327, in get_value\n'
        "    raise Py4JJavaError(\n"
        "py4j.protocol.Py4JJavaError: An error occurred while calling o12.collectToPython.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: no space\n"
    )
    assert cause_of(failure) == (
        "Py4JJavaError: org.apache.spark.SparkException: Job aborted due to stage failure: no space"
    )


def test_only_sparks_own_errors_become_one_line() -> None:
    sparks = type("PythonException", (Exception,), {"__module__": CAPTURED})
    told = "orders.py:9: in clean: ValueError: no such user: a: b"
    with pytest.raises(MoldauError, match=f"^shop: {told}$"), in_one_line("shop"):
        raise sparks(TOLD[told])
    with pytest.raises(ZeroDivisionError), in_one_line("shop"):
        raise ZeroDivisionError


UDF = """\
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "{file}", line 9, in clean
    raise it
{raised}
"""


OURS = str(Path(moldau.__file__).parent)
THEIRS = "/home/me/orders.py"


@pytest.mark.parametrize(
    ("file", "raised", "is_certain"),
    [
        (THEIRS, "ValueError: no such user", True),
        (THEIRS, "KeyError: 'user'", True),
        (THEIRS, "ZeroDivisionError", True),
        (THEIRS, "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", True),
        (THEIRS, "decimal.InvalidOperation: [<class 'decimal.ConversionSyntax'>]", True),
        (THEIRS, "struct.error: unpack requires a buffer of 4 bytes", True),
        (THEIRS, "re.error: nothing to repeat at position 0", True),
        (THEIRS, "zoneinfo._common.ZoneInfoNotFoundError: 'No time zone found'", True),
        (THEIRS, "ipaddress.AddressValueError: Expected 4 octets in 'x'", True),
        (THEIRS, "_csv.Error: line contains NUL", True),
        (THEIRS, "__pipeline_orders__.NoSuchUserError: 7", True),
        (THEIRS, "__pipeline_orders__.clean.<locals>.NoSuchUserError: 7", True),
        # A service that a UDF calls may respond the next time.
        (THEIRS, "ConnectionRefusedError: [Errno 111] refused", False),
        (THEIRS, "requests.exceptions.Timeout: too slow", False),
        (THEIRS, "urllib.error.URLError: <urlopen error>", False),
    ],
)
def test_only_repeatable_failures_are_not_retried(file: str, raised: str, is_certain: bool) -> None:
    failure = RuntimeError(UDF.format(file=file, raised=raised))
    assert is_repeatable(failure) is is_certain
    assert is_caused_by_a_row(failure)
    assert first_line(failure).startswith(raised)


@pytest.mark.parametrize(
    ("file", "is_users"),
    [
        ("/home/me/moldau/pipelines/orders.py", True),
        ("/home/me/pyspark/orders.py", True),
        (f"{OURS}/spark/sink/task_writer.py", False),
        (f"{OURS}/pipelines/compile/values.py", False),
        ("/opt/env/lib/python3.11/site-packages/moldau/client/cluster/cluster.py", False),
        ("/opt/spark/work/app-1/0/moldau.zip/moldau/spark/writer.py", False),
        ("/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", False),
        ("/opt/spark/python/pyspark/worker.py", False),
        ("/usr/lib/python3.11/json/decoder.py", False),
    ],
)
def test_lines_of_users_are_distinguished_from_those_of_libraries(
    file: str, is_users: bool
) -> None:
    failure = RuntimeError(UDF.format(file=file, raised="ValueError: x"))
    assert is_repeatable(failure) is is_users
    assert is_caused_by_a_row(failure) is is_users
    place = f"{file}:9: " if is_users else ""
    assert cause_of(failure).startswith(f"{place}in clean: " if is_users else "ValueError: x")


def test_invalid_values_are_not_retried() -> None:
    def failure(state: str) -> Exception:
        found = ValueError("[CAST_INVALID_INPUT] The value 'u1' cannot be cast")
        found.getSqlState = lambda: state  # type: ignore[attr-defined]
        return found

    assert is_repeatable(failure("22018"))
    assert is_repeatable(failure("P0001"))
    assert is_caused_by_a_row(failure("22018"))
    assert not is_repeatable(failure("XXKST"))
