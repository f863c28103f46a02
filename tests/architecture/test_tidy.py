"""Size budgets and house rules, kept as a test. The allow-list may only shrink."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE_LINES_MAX = 500
LOOP_LINES_MAX = 800
FUNCTION_LINES_MAX = 60
PUBLIC_METHODS_MAX = 16
GENERATED = ("protocol/messages/", "protocol/log_records/")
GENERATED_FILES = ("error_codes.py", "api_keys.py", "enums.py")

# Files or functions over budget, each with its reason. Remove a line when it is mended.
ALLOWED: dict[str, str] = {}

FOLDER_MODULES_MAX = 20
# One module for each API.
ONE_FOR_EACH_API = "broker/handlers"


def python_files() -> Iterator[Path]:
    for folder in ("src", "tests", "tools", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.as_posix()
            if not any(part in text for part in GENERATED) and path.name not in GENERATED_FILES:
                yield path


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


PYTHON_FILES = list(python_files())
SOURCE_FILES = [path for path in PYTHON_FILES if path.is_relative_to(ROOT / "src")]
LOOP_FILES = sorted((ROOT / "src").rglob("*.pyx"))


def test_files_stay_small() -> None:
    over = {
        name_of(path): lines
        for path in PYTHON_FILES
        if (lines := len(path.read_text().splitlines())) > FILE_LINES_MAX
    }
    over |= {
        name_of(path): lines
        for path in LOOP_FILES
        if (lines := len(path.read_text().splitlines())) > LOOP_LINES_MAX
    }
    assert {name: n for name, n in over.items() if name not in ALLOWED} == {}


def test_no_two_files_of_tests_share_a_name() -> None:
    """pytest would take only the first of them."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("path", PYTHON_FILES, ids=name_of)
def test_functions_and_classes_stay_small(path: Path) -> None:
    over = []
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                lines = _lines_of(node) - _docstring_lines_of(node)
                if lines > FUNCTION_LINES_MAX:
                    over.append(f"{node.name} has {lines} lines")
            case ast.ClassDef() if path in SOURCE_FILES:
                methods = [m for m in node.body if isinstance(m, ast.FunctionDef)]
                actions = [m for m in methods if not m.name.startswith("_") and not _is_property(m)]
                if len(actions) > PUBLIC_METHODS_MAX:
                    over.append(f"{node.name} has {len(actions)} public methods")
            case _:
                pass
    assert [line for line in over if f"{name_of(path)}:{line.split()[0]}" not in ALLOWED] == []


def _lines_of(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _docstring_lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """A public function may document all its arguments."""
    has_docstring = ast.get_docstring(function) is not None
    return _lines_of(function.body[0]) if has_docstring else 0


def _is_property(method: ast.FunctionDef) -> bool:
    return any(
        "property" in ast.dump(mark) or "setter" in ast.dump(mark) for mark in method.decorator_list
    )


def test_the_allow_list_holds_nothing_that_is_gone() -> None:
    gone = [entry for entry in ALLOWED if not (ROOT / entry.split(":")[0]).exists()]
    assert gone == []


@pytest.mark.parametrize("path", SOURCE_FILES, ids=name_of)
def test_every_source_module_states_its_rule(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), (
        f"{name_of(path)} has no module docstring"
    )


def test_a_to_do_names_its_issue() -> None:
    bare = re.compile(r"#\s*(TODO|FIXME|XXX)(?!\(#\d+\))")
    found = [name_of(p) for p in [*PYTHON_FILES, *LOOP_FILES] if bare.search(p.read_text())]
    assert found == []


def test_every_compiled_loop_has_a_twin() -> None:
    assert LOOP_FILES
    lonely = [name_of(p) for p in LOOP_FILES if not p.with_name(f"{p.stem}_twin.py").exists()]
    assert lonely == []


def folders() -> Iterator[tuple[str, int]]:
    """Each folder of the package, with the number of its modules."""
    package = ROOT / "src" / "moldau"
    for folder in (package, *sorted(package.rglob("*/"))):
        modules = [path for path in folder.glob("*.py*") if path.suffix in (".py", ".pyx")]
        if modules and not any(part in f"{folder.as_posix()}/" for part in GENERATED):
            yield folder.relative_to(package).as_posix(), len(modules) - 1


def test_a_folder_holds_only_so_many_modules() -> None:
    crowded = {name for name, count in folders() if count > FOLDER_MODULES_MAX}
    assert crowded == {ONE_FOR_EACH_API}


def test_the_architecture_page_knows_every_folder() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = [name for name, _ in folders() if name != "."]
    assert [room for room in rooms if f"{room}/" not in page] == []
