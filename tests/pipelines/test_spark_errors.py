"""Of what Spark says about a failed batch, the line that a user can do something with."""

import pytest

from moldau.pipelines.spark_errors import cause_of, in_one_line
from moldau.protocol.errors import MoldauError

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
    "ValueError: no such user: a: b": f"""{PROXY}\
{CAPTURED}.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "orders.py", line 9, in clean
    raise ValueError("no such user")
ValueError: no such user: a: b
{QUERY}""",
    "[CAST_INVALID_INPUT] The value 'u1' cannot be cast": f"""{PROXY}\
{CAPTURED}.NumberFormatException: [CAST_INVALID_INPUT] The value 'u1' cannot be cast SQLSTATE: 22018
== DataFrame ==
"cast" was called from
orders.py:7
{QUERY}""",
    "orders-0: records from 4 to 9 cannot be read": f"""{PROXY}\
moldau.core.pipelines.errors.DataLossError: orders-0: records from 4 to 9 cannot be read
{QUERY}""",
    "record orders-0 offset 1: no json": f"""{PROXY}\
{CAPTURED}.X: [USER_RAISED_EXCEPTION] record orders-0 offset 1: no json SQLSTATE: P0001
{QUERY}""",
    "[STREAM_FAILED] it failed": f"[STREAM_FAILED] it failed SQLSTATE: XXKST{QUERY}",
}


@pytest.mark.parametrize("told", TOLD)
def test_the_cause_is_told(told: str) -> None:
    assert cause_of(RuntimeError(TOLD[told])) == told


def test_only_sparks_own_errors_become_one_line() -> None:
    sparks = type("PythonException", (Exception,), {"__module__": CAPTURED})
    told = "ValueError: no such user: a: b"
    with pytest.raises(MoldauError, match=f"^shop: {told}$"), in_one_line("shop"):
        raise sparks(TOLD[told])
    with pytest.raises(ZeroDivisionError), in_one_line("shop"):
        raise ZeroDivisionError
