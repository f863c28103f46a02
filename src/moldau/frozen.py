"""Immutable value classes, equivalent to `dataclass(frozen=True, slots=True)` in a fifth of the
time. A node has some eighty such classes, and dataclass compiles six functions for each at every
start; here only `__init__` is compiled. `dataclasses.field` and `replace` work with them. A frozen
class must not inherit from another one.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from operator import attrgetter
from typing import Any, NoReturn, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def frozen(cls: type[T], /) -> type[T]: ...
@overload
def frozen(*, kw_only: bool) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type | None = None, /, *, kw_only: bool = False) -> Any:
    if cls is None:
        return lambda decorated: _frozen(decorated, kw_only)
    return _frozen(cls, kw_only)


def _frozen(cls: type, kw_only: bool) -> type:
    cls.__doc__ = cls.__doc__ or cls.__name__  # or dataclass would work out a signature
    parts = fields(dataclass(init=False, repr=False, eq=False, match_args=False)(cls))
    names = tuple(part.name for part in parts)
    members = {name: value for name, value in vars(cls).items() if name not in names}
    for automatic in ("__dict__", "__weakref__"):
        members.pop(automatic, None)
    members |= {"__slots__": names, "__qualname__": cls.__qualname__}
    members["__match_args__"] = () if kw_only else names
    for name, value in _behaviour(names).items():
        members.setdefault(name, value)
    members["__init__"] = _constructor(cls, parts, kw_only)
    return type(cls)(cls.__name__, cls.__bases__, members)


def _constructor(cls: type, parts: tuple[Field[Any], ...], kw_only: bool) -> Any:
    known: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    parameters, body = ["self", "*"] if kw_only else ["self"], []
    for part in parts:
        name, value = part.name, part.name
        if part.default is not MISSING:
            known[f"_{name}"] = part.default
            parameters.append(f"{name}=_{name}")
        elif part.default_factory is not MISSING:
            known[f"_{name}"] = part.default_factory
            parameters.append(f"{name}=_missing")
            value = f"_{name}() if {name} is _missing else {name}"
        else:
            parameters.append(name)
        body.append(f" _set(self, {name!r}, {value})\n")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()\n")
    exec(f"def __init__({', '.join(parameters)}):\n{''.join(body) or ' pass'}", known)  # noqa: S102
    known["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return known["__init__"]


def _behaviour(names: tuple[str, ...]) -> dict[str, Any]:
    content: Callable[[object], Any] = attrgetter(*names) if names else _nothing

    def equals(self: object, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return content(self) == content(other)

    def hash_of(self: object) -> int:
        return hash(content(self))

    def text(self: object) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({shown})"

    def state(self: object) -> list[Any]:
        return [getattr(self, name) for name in names]

    def restore(self: object, values: list[Any]) -> None:
        for name, value in zip(names, values, strict=True):
            object.__setattr__(self, name, value)

    return {
        "__eq__": equals,
        "__hash__": hash_of,
        "__repr__": text,
        "__getstate__": state,
        "__setstate__": restore,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
    }


def _nothing(_value: object) -> tuple[()]:
    return ()


def _refuse(self: object, name: str, *_value: object) -> NoReturn:
    raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be changed")
