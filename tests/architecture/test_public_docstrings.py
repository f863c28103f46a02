"""Everything that users may call is documented. Every public function, class, method and property
of the public modules, and of the classes that these return, has a docstring that stands on its own:
it begins with a sentence, and names the parameters, the result, and the errors that it raises.
"""

import ast
import builtins
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any, get_args, get_type_hints

import pytest

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
# Internal to the producer, though a delivery refers to it.
INSIDE = {"Batch"}
# The compiled class has no docstring; that of its Python twin is in the same package.
COMPILED = {"ConsumerRecord"}
FIRST_SENTENCE_WORDS_MIN = 3


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
    """The classes of this package that a call returns, also inside of lists and unions."""
    kinds = [returned(function)]
    for kind in kinds:
        if inspect.isclass(kind) and kind.__module__.startswith("moldau."):
            yield kind
        kinds += get_args(kind)


def returned(function: Callable[..., Any]) -> Any:
    code = inspect.unwrap(function)
    if "return" not in getattr(code, "__annotations__", {}):
        return None
    names = names_for_types(code.__module__) | {"Self": object}
    return get_type_hints(_only_return(code), localns=names)["return"]


def _only_return(code: Any) -> Any:
    """A function with the annotation of the result alone: those of arguments need not resolve."""

    def stand_in() -> None: ...

    stand_in.__annotations__ = {"return": code.__annotations__["return"]}
    stand_in.__module__ = code.__module__
    return stand_in


@cache
def names_for_types(module: str) -> dict[str, Any]:
    """The names of a module, with those that it imports for type checkers alone."""
    home = sys.modules[module]
    names = dict(vars(home))
    for node in ast.walk(ast.parse(inspect.getsource(home))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                name = alias.asname or alias.name
                if name not in names and (source := _imported(node.module)) is not None:
                    names[name] = getattr(source, alias.name, None) or object
    return names


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


def returned_by(module: Any) -> set[type]:
    """All classes that users can get, after any number of calls."""
    public = [getattr(module, name) for name in module.__all__]
    calls: list[Callable[..., Any]] = [item for item in public if inspect.isfunction(item)]
    seen: set[type] = set()
    classes = [item for item in public if inspect.isclass(item)]
    while calls or classes:
        new = {kind for call in calls for kind in returned_classes(call)} | set(classes)
        calls = [call for kind in new - seen for call in methods_of(kind)]
        seen |= new
        classes = []
    return {kind for kind in seen if kind.__module__.startswith("moldau.")}


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_that_is_returned_has_docstrings(name: str) -> None:
    missing = [
        f"{kind.__name__}.{member}"
        for kind in returned_by(import_module(name))
        if not issubclass(kind, Enum) and kind.__name__ not in INSIDE
        for member in undocumented_members(kind)
    ]
    assert sorted(missing) == []


def test_the_results_of_calls_are_followed() -> None:
    import moldau

    names = {kind.__name__ for kind in returned_by(moldau)}
    assert {"Producer", "Sent", "Deliveries", "WrittenRange", "RecordMetadata"} <= names


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_has_a_docstring(name: str) -> None:
    assert list(undocumented(import_module(name))) == []


def test_what_has_none_is_found() -> None:
    class Undocumented:
        __module__ = "moldau.invented"

        def method(self) -> None: ...

    Undocumented.method.__module__ = "moldau.invented"
    assert list(undocumented_members(Undocumented)) == ["method"]


def problems_of(function: Callable[..., Any], text: str) -> Iterator[str]:
    """Why `text` does not document a function on its own."""
    code = inspect.unwrap(function)
    yield from problems_of_beginning(text)
    for parameter in inspect.signature(code).parameters.values():
        is_self = parameter.name in {"self", "cls"}
        is_any = parameter.kind is inspect.Parameter.VAR_KEYWORD or parameter.name.startswith("_")
        if not is_self and not is_any and not re.search(rf"\b{parameter.name}\b", text):
            yield f"does not mention {parameter.name}"
    annotation = getattr(code, "__annotations__", {}).get("return")
    is_silent = annotation in {None, type(None), "None"}
    if not is_silent and not re.search(r"\b(return|yield|iterate)s?\b", text, re.IGNORECASE):
        yield "does not say what it returns"
    for error in sorted(raised_names(code)):
        if not is_mentioned(error, code, text):
            yield f"does not mention {error}"


def problems_of_beginning(text: str) -> Iterator[str]:
    sentence = re.split(r"(?<=[.:])\s", text.strip(), maxsplit=1)[0]
    if len(sentence.split()) < FIRST_SENTENCE_WORDS_MIN:
        yield "does not begin with a sentence"


def raised_names(code: Callable[..., Any]) -> set[str]:
    """The errors that a function raises itself, in a `raise` with the name of a class. Functions
    inside it are left out, as their errors may be caught.
    """
    nodes: list[ast.AST] = list(ast.parse(textwrap.dedent(inspect.getsource(code))).body[0].body)  # type: ignore[attr-defined]
    for node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes += ast.iter_child_nodes(node)
    raised = [node.exc for node in nodes if isinstance(node, ast.Raise)]
    calls = [error.func for error in raised if isinstance(error, ast.Call)]
    return {call.id for call in calls if isinstance(call, ast.Name) and call.id[0].isupper()}


def is_mentioned(error: str, code: Callable[..., Any], text: str) -> bool:
    """Whether a docstring names an error, or a class of errors that it belongs to."""
    kind = code.__globals__.get(error) or getattr(builtins, error, None)
    kinds = kind.__mro__ if inspect.isclass(kind) else ()
    names = {error} | {each.__name__ for each in kinds} - {"Exception", "BaseException", "object"}
    return any(re.search(rf"\b{name}\b", text) for name in names)


def problems_of_class(owner: type) -> Iterator[str]:
    """Why the docstrings of a class and its methods do not stand on their own."""
    is_generated = (owner.__doc__ or "").startswith(f"{owner.__name__}(")
    if not inspect.getdoc(owner) or is_generated:
        yield f"{owner.__name__} has no docstring of its own"
    for name in dir(owner):
        member = inspect.getattr_static(owner, name)
        code = getattr(member, "__func__", member)
        if name.startswith("_"):
            continue
        if inspect.isfunction(code):
            problems = problems_of(code, inspect.getdoc(code) or "")
        elif isinstance(member, property):
            problems = problems_of_beginning(inspect.getdoc(member) or "")
        else:
            continue
        for problem in problems:
            yield f"{owner.__name__}.{name} {problem}"


def problems_of_constructor(owner: type) -> Iterator[str]:
    """Which parameters of `__init__` neither its docstring nor that of the class mentions."""
    make = vars(owner).get("__init__")
    if inspect.isfunction(make) and not is_dataclass(owner) and not issubclass(owner, Exception):
        for problem in problems_of(make, f"{owner.__doc__}\n{make.__doc__}"):
            if "mention" in problem:
                yield f"{owner.__name__} {problem}"


@pytest.mark.parametrize("name", PUBLIC)
def test_docstrings_stand_on_their_own(name: str) -> None:
    module = import_module(name)
    public = [getattr(module, item) for item in module.__all__]
    functions = [item for item in public if inspect.isfunction(item)]
    problems = [
        f"{function.__name__} {problem}"
        for function in functions
        for problem in problems_of(function, inspect.getdoc(function) or "")
    ]
    for kind in filter(inspect.isclass, public):
        problems += problems_of_constructor(kind)
    for kind in sorted(returned_by(module), key=lambda kind: kind.__qualname__):
        if not issubclass(kind, Enum) and kind.__name__ not in INSIDE | COMPILED:
            problems += problems_of_class(kind)
    assert problems == []


def test_a_fragment_is_not_a_docstring() -> None:
    def function(names: list[str]) -> int:
        """All."""
        if not names:
            raise LookupError("no names")
        return len(names)

    assert list(problems_of(function, function.__doc__ or "")) == [
        "does not begin with a sentence",
        "does not mention names",
        "does not say what it returns",
        "does not mention LookupError",
    ]


def test_methods_of_every_kind_are_checked() -> None:
    class Owner:
        """A class with a docstring."""

        @classmethod
        def of_class(cls) -> int:
            """All."""
            return 1

        @staticmethod
        def static() -> int:
            """All."""
            return 1

        @property
        def value(self) -> int:
            """All."""
            return 1

    names = {problem.split()[0] for problem in problems_of_class(Owner)}
    assert names == {"Owner.of_class", "Owner.static", "Owner.value"}


def test_an_error_may_be_named_by_its_base_class() -> None:
    def function() -> None:
        raise KeyError("missing")

    assert is_mentioned("KeyError", function, "Raises LookupError.")
    assert not is_mentioned("KeyError", function, "Raises ValueError.")
