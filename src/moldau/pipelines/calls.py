"""Calls in users' files: arguments that do not exist are told as in YAML, with their place."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar

from moldau.core.pipelines.errors import suggestion
from moldau.core.pipelines.graph import PipelineError
from moldau.pipelines.arguments import wrong
from moldau.pipelines.spots import caller

_OURS = "spot"
"""Where YAML says its place; no word of users."""
Given = ParamSpec("Given")
Made = TypeVar("Made")


def checked(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """Raises PipelineError where Python would raise TypeError."""
    wanted = signature(function)

    @wraps(function)
    def call(*given: Given.args, **named: Given.kwargs) -> Made:
        try:
            wanted.bind(*given, **named)
        except TypeError as error:
            raise _misused(function, given, named, str(error)) from None
        return function(*given, **named)

    return call


def _misused(
    function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any], said: str
) -> PipelineError:
    name = getattr(function, "__name__", "")
    known = signature(function).parameters
    for word in named:
        if word not in known:
            words = [one for one in known if one != _OURS]
            hint = suggestion(word, words) or f"; there are {', '.join(words)}"
            return wrong(caller(), f"mp.{name} has no '{word}'{hint}")
    takes_none = all(one.kind is Parameter.KEYWORD_ONLY for one in known.values())
    if takes_none and len(given) == 1 and callable(given[0]):
        return wrong(caller(), f"write @mp.{name}(), with parentheses")
    return wrong(caller(), f"mp.{name}: {said}")
