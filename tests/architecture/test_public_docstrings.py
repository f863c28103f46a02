"""What users may call says what it does: every public function, class, method and property of the
public modules has a docstring.
"""

import inspect
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from typing import Any

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


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_has_a_docstring(name: str) -> None:
    assert list(undocumented(import_module(name))) == []


def test_what_has_none_is_found() -> None:
    class Undocumented:
        __module__ = "moldau.invented"

        def method(self) -> None: ...

    Undocumented.method.__module__ = "moldau.invented"
    assert list(undocumented_members(Undocumented)) == ["method"]
