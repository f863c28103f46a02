"""Docstrings of the blocking clients, taken from their asyncio twins. A contract is written once,
at the asyncio method. Examples are not copied, since only one of the two awaits.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_EXAMPLES = "Examples:"


def documented_by(twin: object) -> Callable[[Function], Function]:
    """Makes a decorator that gives a method the docstring of `twin`.

    The docstring of the decorated method itself, if it has one, holds its examples. They replace
    those of the twin.
    """
    contract = (inspect.getdoc(twin) or "").partition(_EXAMPLES)[0].rstrip()

    def document(method: Function) -> Function:
        examples = inspect.getdoc(method)
        method.__doc__ = f"{contract}\n\n{examples}" if examples else contract
        return method

    return document
