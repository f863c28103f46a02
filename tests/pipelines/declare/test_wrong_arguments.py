"""Wrong arguments of the functions that declare a pipeline: each is an error of one line with its
location, never a traceback.
"""

from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import moldau.pipelines as mp
from moldau.core.pipelines.graph_checks import problems_of
from moldau.pipelines.declare.python_file import declarations_of

VALUES: list[Any] = [
    5, -1, 0, 1.5, True, None, "", "x", b"x", [], ["x"], [5], (), {}, {"x": "y"}, {5: "x"},
    {"x": 5}, {"x": ["y"]}, {"x": None}, object(), int, len, mp.topic("t"), Path("p"),
]  # fmt: skip
NEEDED: dict[str, dict[str, Any]] = {
    "topic": {"name": "t"},
    "http": {"url": "http://127.0.0.1/", "schema": "id INT"},
    "files": {"path": "p", "format": "json", "schema": "id INT"},
    "table": {"path": "p"},
    "postgres": {"name": "t", "url": "postgresql://h/d", "by": "id"},
    "flow": {},
    "sql": {"text": "SELECT * FROM source"},
    "pipeline": {},
    "example": {"name": "e", "given": {"source": []}, "expect": {"flow": []}},
}
CASES = [
    (function, word)
    for function in NEEDED
    for word in signature(getattr(mp, function)).parameters
    if word != "spot"
]


def declared(function: str, given: dict[str, Any]) -> ModuleType:
    """A file with a source, a flow and one more declaration, or with that declaration instead."""
    module = ModuleType("user")
    made = getattr(mp, function)(**given)

    def flow(source: Any) -> Any:
        return source

    vars(module)["source"] = mp.topic("a", schema="id INT")
    vars(module)["flow"] = mp.flow(into=mp.topic("b"))(flow)
    if function == "flow":
        vars(module)["flow"] = made(flow)
    elif function in {"topic", "http", "files", "postgres"}:
        vars(module)["source"] = made
    else:
        vars(module)["made"] = made
    return module


@pytest.mark.parametrize(("function", "word"), CASES)
def test_a_wrong_value_is_an_error_of_one_line_with_its_location(function: str, word: str) -> None:
    told: list[str] = []
    for value in VALUES:
        try:
            module = declared(function, NEEDED[function] | {word: value})
            # Errors that depend on other parts are found when the parts are combined.
            problems_of(declarations_of(module).pipeline(Path("user.py")))
        except mp.PipelineError as error:
            told.append(str(error))
    assert told
    for line in told:
        assert line.startswith(f"{__file__}:")
        assert "\n" not in line


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"expect": ["x"]},
            "mp.flow: expect must be a mapping of str to str or a list of Expectation",
        ),
        ({"expect": {5: "x"}}, "mp.flow: expect must be a mapping of str to str"),
        ({"mode": ["append"]}, "mode must be append, upsert or complete"),
        ({"into": "b"}, "into must be mp.topic(…)"),
    ],
)
def test_the_error_names_the_accepted_type(given: dict[str, Any], message: str) -> None:
    with pytest.raises(mp.PipelineError) as wrong:
        mp.flow(**given)
    assert message in str(wrong.value)


def test_options_of_a_format_are_checked_one_by_one() -> None:
    mp.json(timestampFormat="yyyy/MM/dd")
    with pytest.raises(mp.PipelineError, match=r"mp\.json: timestampFormat must be str, not 5"):
        mp.json(timestampFormat=5)  # type: ignore[arg-type]
