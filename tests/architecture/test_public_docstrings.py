"""What users may call says what it does: every public function, class, method and property of the
public modules has a docstring, and so have those of what these give back.
"""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any, get_args, get_type_hints

import pytest

# Enumerations of the protocol say it by their names.
PUBLIC = [
    "moldau",
    "moldau.admin",
    "moldau.aio",
    "moldau.errors",
    "moldau.pipelines",
    "moldau.schemas",
    "moldau.spark",
    "moldau.testing",
]
# A record that was sent keeps it; nobody else has to do with it.
INSIDE = {"Batch"}


def undocumented(module: Any) -> Iterator[str]:
    for name in module.__all__:
        found = getattr(module, name)
        is_enum = inspect.isclass(found) and issubclass(found, Enum)
        if not inspect.isclass(found) and not inspect.isfunction(found):
            continue
        if not is_enum and not inspect.getdoc(found):
            yield name
        if inspect.isclass(found):
            yield from (f"{name}.{member}" for member in undocumented_members(found))


def undocumented_members(owner: type) -> Iterator[str]:
    for name, member in inspect.getmembers(owner):
        code = member.fget if isinstance(member, property) else member
        is_ours = str(getattr(code, "__module__", "")).startswith("moldau.")
        if name.startswith("_") or not is_ours or not callable(code):
            continue
        if not inspect.getdoc(member):
            yield name


def returned_classes(function: Callable[..., Any]) -> Iterator[type]:
    """Those of ours that a call gives, also inside of lists and unions."""
    wanted = [returned(function)]
    for one in wanted:
        if inspect.isclass(one) and one.__module__.startswith("moldau."):
            yield one
        wanted += get_args(one)


def returned(function: Callable[..., Any]) -> Any:
    code = inspect.unwrap(function)
    if "return" not in getattr(code, "__annotations__", {}):
        return None
    names = names_for_types(code.__module__) | {"Self": object}
    return get_type_hints(_only_return(code), localns=names)["return"]


def _only_return(code: Any) -> Any:
    """Types of arguments are nothing that users look up."""

    def stand_in() -> None: ...

    stand_in.__annotations__ = {"return": code.__annotations__["return"]}
    stand_in.__module__ = code.__module__
    return stand_in


@cache
def names_for_types(module: str) -> dict[str, Any]:
    """Of a module, and what it imports for type checkers alone."""
    home = sys.modules[module]
    found = dict(vars(home))
    for node in ast.walk(ast.parse(inspect.getsource(home))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                name = one.asname or one.name
                if name not in found and (source := _imported(node.module)) is not None:
                    found[name] = getattr(source, one.name, None) or object
    return found


def _imported(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        return None


def methods_of(owner: type) -> Iterator[Callable[..., Any]]:
    for name, member in inspect.getmembers(owner):
        code = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and inspect.isfunction(code):
            yield code


def given_back(module: Any) -> set[type]:
    """All classes that users can get at, however many calls that takes."""
    public = [getattr(module, name) for name in module.__all__]
    calls: list[Callable[..., Any]] = [one for one in public if inspect.isfunction(one)]
    seen: set[type] = set()
    classes = [one for one in public if inspect.isclass(one)]
    while calls or classes:
        new = {one for call in calls for one in returned_classes(call)} | set(classes)
        calls = [call for one in new - seen for call in methods_of(one)]
        seen |= new
        classes = []
    return {one for one in seen if one.__module__.startswith("moldau.")}


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_that_is_given_back_has_docstrings(name: str) -> None:
    found = given_back(import_module(name))
    missing = [
        f"{one.__name__}.{member}"
        for one in found
        if not issubclass(one, Enum) and one.__name__ not in INSIDE
        for member in undocumented_members(one)
    ]
    assert sorted(missing) == []


def test_what_a_call_gives_back_is_followed() -> None:
    import moldau

    found = {one.__name__ for one in given_back(moldau)}
    assert {"Producer", "Sent", "Deliveries", "WrittenRange", "RecordMetadata"} <= found


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_has_a_docstring(name: str) -> None:
    assert list(undocumented(import_module(name))) == []


def test_what_has_none_is_found() -> None:
    class Undocumented:
        __module__ = "moldau.invented"

        def method(self) -> None: ...

    Undocumented.method.__module__ = "moldau.invented"
    assert list(undocumented_members(Undocumented)) == ["method"]
