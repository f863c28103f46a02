"""Size budgets and house rules, kept as a test. The allow-list may only shrink."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE_LINES_MAX = 500
LOOP_LINES_MAX = 800
# A compiled loop with all that it includes.
UNIT_LINES_MAX = 1_000
FUNCTION_LINES_MAX = 60
GENERATED = ("protocol/messages/", "protocol/log_records/")
GENERATED_FILES = ("error_codes.py", "api_keys.py", "enums.py")

# Files or functions over budget, each with its reason. Remove a line when it is mended.
ALLOWED: dict[str, str] = {}
# Compile units over budget, each with its lines and the reason. The number may only shrink.
ALLOWED_UNITS: dict[str, tuple[int, str]] = {
    "src/moldau/protocol/records/_records.pyx": (
        1_296,
        "reading, checking and building records share one inlined reader of varints",
    ),
    "src/moldau/protocol/wire/_codec.pyx": (
        1_023,
        "reading and writing share the classes of compiled schemas",
    ),
}

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
        name_of(path): lines for path in PYTHON_FILES if (lines := lines_of(path)) > FILE_LINES_MAX
    }
    over |= {
        name_of(path): lines for path in LOOP_FILES if (lines := lines_of(path)) > LOOP_LINES_MAX
    }
    assert {name: n for name, n in over.items() if name not in ALLOWED} == {}


def test_no_two_files_of_tests_share_a_name() -> None:
    """pytest would take only the first of them."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_functions_stay_small() -> None:
    over = {
        f"{name_of(path)}:{node.name}": lines
        for path in PYTHON_FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := _lines_of(node) - _docstring_lines_of(node)) > FUNCTION_LINES_MAX
    }
    assert {name: n for name, n in over.items() if name not in ALLOWED} == {}


def _lines_of(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _docstring_lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """A public function may document all its arguments."""
    has_docstring = ast.get_docstring(function) is not None
    return _lines_of(function.body[0]) if has_docstring else 0


def test_the_allow_list_holds_nothing_that_is_gone() -> None:
    gone = [entry for entry in ALLOWED if not (ROOT / entry.split(":")[0]).exists()]
    assert gone == []


def test_compile_units_stay_small() -> None:
    """With their includes. A unit on the list has at most as many lines as the list says."""
    over = {
        name_of(path): lines
        for path in LOOP_FILES
        if (lines := sum(lines_of(part) for part in unit(path))) > UNIT_LINES_MAX
    }
    assert over.keys() == ALLOWED_UNITS.keys()
    assert {name: n for name, n in over.items() if n > ALLOWED_UNITS[name][0]} == {}


def unit(path: Path) -> list[Path]:
    """A compiled loop and the files that it includes."""
    included = re.findall(r'^include "(.+)"', path.read_text(), re.MULTILINE)
    return [path, *(path.parent / name for name in included)]


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_every_included_file_belongs_to_a_unit() -> None:
    known = {part for path in LOOP_FILES for part in unit(path)}
    assert [name_of(p) for p in (ROOT / "src").rglob("*.pxi") if p not in known] == []


def test_every_source_module_states_its_rule() -> None:
    silent = [p for p in SOURCE_FILES if not ast.get_docstring(ast.parse(p.read_text()))]
    assert [name_of(path) for path in silent] == []


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


def test_the_index_of_the_architecture_page_names_what_exists() -> None:
    """Each row of "Where is …?" names files, each with functions, methods or tables in it."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    section = page.split("\n## Where is …?\n")[1].split("\n## ")[0]
    _, _, *rows = [line for line in section.splitlines() if line]
    assert len(rows) >= 12
    wrong = []
    for row in rows:
        for place in row.strip("| ").split(" | ")[1].split(", "):
            file, *names = re.findall(r"`([^`]+)`", place)
            if not names or not all(defines(file, name) for name in names):
                wrong.append(place)
    assert wrong == []


def defines(file: str, name: str) -> bool:
    """Whether a Python module or a compiled loop has the function, method, class or constant."""
    path = ROOT / "src" / "moldau" / file
    pattern = re.compile(
        rf"^ *(?:async )?def {name}\b|^class {name}\b|^{name}\b.* = ", re.MULTILINE
    )
    return path.is_file() and pattern.search(path.read_text()) is not None


def test_a_name_of_the_index_is_found_only_where_it_is_defined() -> None:
    assert defines("cli/__init__.py", "main")
    assert defines("cli/app.py", "COMMANDS")
    assert defines("protocol/records/_records.pyx", "stamp_batch")
    assert not defines("cli/__init__.py", "mai")
    assert not defines("cli/__init__.py", "app"), "it is only imported there"
    assert not defines("cli/main.py", "main")
