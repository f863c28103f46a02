"""Checks calls in users' files: unknown arguments, or arguments of the wrong type, are reported as
in YAML, with the line of the call.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from moldau.core.pipelines.graph import PipelineError
from moldau.core.spark.errors import suggestion
from moldau.pipelines.declare.arguments import pipeline_error
from moldau.pipelines.declare.source_locations import caller

_INTERNAL_PARAMETER = "spot"
"""The parameter in which the reader of YAML passes the line; not shown to users."""
_SHOWN_CHARS_MAX = 60
_NAMES: dict[Any, str] = {Mapping: "a mapping", Sequence: "a list", Callable: "a function"}
# Errors that a function may raise if an argument has the wrong type.
_ERRORS_OF_WRONG_TYPES = (AttributeError, KeyError, TypeError, ValueError)
Given = ParamSpec("Given")
Made = TypeVar("Made")


def checked(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """Raises PipelineError where Python would raise TypeError."""
    wanted = signature(function)

    @wraps(function)
    def call(*given: Given.args, **named: Given.kwargs) -> Made:
        try:
            bound = wanted.bind(*given, **named)
        except TypeError as error:
            raise _misused(function, given, named, str(error)) from None
        try:
            made = function(*given, **named)
        except _ERRORS_OF_WRONG_TYPES as error:
            raise (_mistyped(function, bound.arguments) or error) from None
        # Afterwards, because the function's own errors say more.
        mistyped = _mistyped(function, bound.arguments)
        if mistyped is not None:
            raise mistyped
        return made

    return call


def _misused(
    function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any], message: str
) -> PipelineError:
    name = getattr(function, "__name__", "")
    known = signature(function).parameters
    for word in named:
        if word not in known:
            words = [parameter for parameter in known if parameter != _INTERNAL_PARAMETER]
            hint = suggestion(word, words) or f"; choose from {', '.join(words)}"
            return pipeline_error(caller(), f"mp.{name} has no '{word}'{hint}")
    takes_none = all(each.kind is Parameter.KEYWORD_ONLY for each in known.values())
    if takes_none and len(given) == 1 and callable(given[0]):
        return pipeline_error(caller(), f"write @mp.{name}(), with parentheses")
    return pipeline_error(caller(), f"mp.{name}: {message}")


def _mistyped(function: Callable[..., Any], given: Mapping[str, object]) -> PipelineError | None:
    name = getattr(function, "__name__", "")
    types = get_type_hints(function)
    # Arguments in `**options` are checked one by one.
    gathered = {
        word
        for word, parameter in signature(function).parameters.items()
        if parameter.kind is Parameter.VAR_KEYWORD
    }
    each = {word: value for word, value in given.items() if word not in gathered}
    for word in gathered & given.keys():
        options = cast("Mapping[str, object]", given[word])
        each |= options
        types |= dict.fromkeys(options, types[word])
    for word, value in each.items():
        if not _fits(value, types[word]):
            shown = repr(value)
            if len(shown) > _SHOWN_CHARS_MAX:
                shown = f"{shown[:_SHOWN_CHARS_MAX]}…"
            return pipeline_error(
                caller(), f"mp.{name}: {word} must be {_described(types[word])}, not {shown}"
            )
    return None


def _fits(value: object, kind: Any) -> bool:
    if kind in {Any, object}:
        return True
    origin, inner = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        return any(_fits(value, option) for option in inner)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0]) and _fits(each, inner[1]) for key, each in value.items()
        )
    if origin is Sequence:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return False
        return all(_fits(each, inner[0]) for each in value)
    kind = origin or kind
    return not isinstance(kind, type) or isinstance(value, kind)


def _described(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        kinds = [_described(option) for option in inner if option is not NoneType]
        return " or ".join([", ".join(kinds[:-1]), kinds[-1]]) if len(kinds) > 1 else kinds[0]
    text = str(_NAMES.get(origin) or getattr(kind, "__name__", kind))
    if origin is Mapping and inner[1] not in {object, Any}:
        text = f"{text} of {inner[0].__name__} to {_described(inner[1])}"
    elif origin is Sequence:
        text = f"{text} of {_described(inner[0])}"
    return text
