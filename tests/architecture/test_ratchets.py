"""Rules with exceptions that are listed and counted. A list may only shrink: an entry that is no
longer needed fails as much as a new exception.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from architecture.test_tidy import PYTHON_FILES, ROOT, SOURCE_FILES, name_of

# Fixed sleeps by file, each with its number and the reason. Conditions are awaited with `until` and
# `wait_for`, and the broker's time is moved by its clock.
SLEEPS: dict[str, tuple[int, str]] = {
    "tests/client/consumer/test_aio_consumer.py": (1, "a poll that the application cancels"),
    "tests/client/consumer/test_consumer.py": (
        4,
        "nothing follows: after the last record, on a paused partition, in an open transaction",
    ),
    "tests/client/consumer/test_consumer_faults.py": (
        2,
        "a close that the application cancels, and nothing from a broker that does not answer",
    ),
    "tests/interop/group_talk.py": (
        1,
        "`after 100` of a conversation that Apache Kafka hears, too",
    ),
    "tests/interop/peers/traffic.py": (1, "paces what is written until the test stops it"),
    "tests/system/node/test_memory_under_attack.py": (1, "until the node reads no more"),
    "tests/third_party/test_confluent_transactions.py": (1, "an open transaction stays unseen"),
}
WAITING = "tests/support/waiting.py"

# Private members of our own classes that tests use, counted by file.
PRIVATE: dict[str, int] = {
    "tests/client/consumer/test_consumer.py": 6,
    "tests/client/consumer/test_consumer_edges.py": 5,
    "tests/client/consumer/test_consumer_groups.py": 2,
    "tests/client/consumer/test_consumer_misuse.py": 1,
    "tests/client/producer/test_producer_edges.py": 1,
    "tests/config/live/live_node.py": 1,
    "tests/config/live/second_broker.py": 2,
    "tests/interop/test_consumer_in_a_cluster.py": 1,
    "tests/net/test_clock.py": 1,
}
# Those of named tuples, os._exit, and those by which PySpark's users reach the JVM.
NOT_OURS = {"_exit", "_replace", "_make", "_asdict", "_fields", "_jvm", "_jdf", "_jsc"}

# Words that CONTRIBUTING replaces, counted by folder.
RIDDLES = re.compile(
    r"\b(?:some[b]ody|no[b]ody|who[e]ver|g(?:oes|one)\s+on|(?:is|are)\s+told"
    r"|by\s+(?:it|them)sel(?:f|ves)|settl(?:e[ds]?|ing))\b",
    re.IGNORECASE,
)
# A noun that is "no" something. "There is no leader", "is no longer", "is no larger" are good.
IS_NO = re.compile(
    r"\b(there\s+)?(?:is|are|was|were)\s+no\s+(?!longer|more|less|larger|smaller)\w", re.IGNORECASE
)
RIDDLES_MAX: dict[str, int] = {
    "tests/core": 1,
    "tests/data": 12,
    "tests/interop": 18,
    "tests/support": 2,
}
# Docstrings that begin with a clause instead of a noun or a verb ("What it holds."), by folder.
HEADLESS = re.compile(r"(?:What|Who)\b[^?]*\Z")
HEADLESS_MAX: dict[str, int] = {}


@cache
def trees() -> list[tuple[str, ast.Module]]:
    files = [path for path in PYTHON_FILES if path.is_relative_to(ROOT / "tests")]
    return [(name_of(path), ast.parse(path.read_text(encoding="utf-8"))) for path in files]


def test_tests_wait_for_conditions_and_not_for_a_time() -> None:
    found = {name: sum(1 for _ in sleeps(tree)) for name, tree in trees() if name != WAITING}
    assert {n: c for n, c in found.items() if c} == {n: c for n, (c, _) in SLEEPS.items()}


def sleeps(tree: ast.Module) -> Iterator[ast.AST]:
    """Expressions that let a fixed time pass, whatever the spelling."""
    constants = dict(_constants(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_fixed_sleep(node, constants):
            yield node
        if isinstance(node, ast.Compare) and _is_silence(node, constants):
            yield node
        if isinstance(node, ast.For) and _is_pause(node.body):
            yield node


def _is_pause(body: list[ast.stmt]) -> bool:
    return len(body) == 1 and ast.unparse(body[0]) == "pause()"


def _constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case _:
                pass


def _is_silence(compared: ast.Compare, constants: Mapping[str, ast.expr]) -> bool:
    """That nothing arrives within a short time."""
    return (
        isinstance(compared.left, ast.Call)
        and _name_of(compared.left) == "poll"
        and any(_is_short(time) for time in _times_of(compared.left, constants))
        and ast.unparse(compared.comparators[0]) in {"[]", "{}", "None"}
    )


def _name_of(call: ast.Call) -> str:
    name: str = getattr(call.func, "attr", getattr(call.func, "id", ""))
    return name


def _times_of(call: ast.Call, constants: Mapping[str, ast.expr]) -> list[ast.expr]:
    """Its arguments, with the values of the file's constants."""
    given = [*call.args, *(word.value for word in call.keywords)]
    return [constants.get(each.id, each) if isinstance(each, ast.Name) else each for each in given]


def _is_fixed_sleep(call: ast.Call, constants: Mapping[str, ast.expr]) -> bool:
    name = _name_of(call)
    times = _times_of(call, constants)
    if name in {"join", "result", "exception", "get", "select"} and any(map(_is_short, times)):
        # It returns early if there is something. What follows a short wait without is a verdict.
        return True
    if name not in {"sleep", "wait", "wait_for", "timeout", "select"}:
        return False
    match ast.unparse(call.func):
        case "asyncio.sleep" | "time.sleep" | "sleep":
            return not all(_is_zero(time) for time in times)
        case "asyncio.wait" | "asyncio.timeout" | "asyncio.wait_for":
            return any(_is_short(time) for time in times)
        case "select.select":
            return [ast.unparse(time) for time in times[:3]] == ["[]"] * 3
        case "Event().wait" | "threading.Event().wait":
            # An event without a name is never set.
            return bool(times)
        case _:
            return False


def _is_zero(time: ast.expr) -> bool:
    return isinstance(time, ast.Constant) and time.value == 0


def _is_short(time: ast.expr) -> bool:
    """Too short for a time-out that only ends a test that hangs."""
    return (
        isinstance(time, ast.Constant)
        and isinstance(time.value, float | int)
        and (0 < time.value < 1)
    )


def test_a_fixed_sleep_is_found_in_every_spelling() -> None:
    found = """
asyncio.sleep(0.1)
asyncio.sleep(DELAY_S)
time.sleep(1)
sleep(1)
threading.Event().wait(0.5)
Event().wait(timeout=0.5)
asyncio.wait({task}, timeout=0.1)
asyncio.wait_for(shield(task), 0.1)
select.select([], [], [], 0.1)
selector.select(0.1)
thread.join(timeout=0.2)
future.result(0.1)
SHORT_S = 0.05
asyncio.timeout(SHORT_S)
consumer.poll(0.2) == []
for _ in range(7):
    pause()
"""
    kept = """
asyncio.sleep(0)
asyncio.Event().wait()
changed.wait(60)
clock.sleep(60_000)
asyncio.timeout(30)
LONG_S = 60
asyncio.timeout(LONG_S)
thread.join(LONG_S)
consumer.poll(30) == []
selector.select(0)
while is_busy():
    pause()
"""
    assert sum(1 for _ in sleeps(ast.parse(found))) == 15
    assert list(sleeps(ast.parse(kept))) == []


def test_tests_use_what_is_public() -> None:
    found = {name: sum(1 for _ in private_uses(tree)) for name, tree in trees()}
    assert {name: count for name, count in found.items() if count} == PRIVATE


def private_uses(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in our_private_names():
            owner = ast.unparse(node.value)
            if owner not in {"self", "cls", "super()"}:
                yield f"{owner}.{node.attr}"


@cache
def our_private_names() -> set[str]:
    """Private attributes and methods of the package's classes."""
    names = set()
    for path in SOURCE_FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    names.add(name)
                case ast.ClassDef():
                    names.update(_defined_in(node))
                case _:
                    pass
    return {name for name in names if re.match(r"_[^_]", name)} - NOT_OURS


def _defined_in(owner: ast.ClassDef) -> Iterator[str]:
    for node in owner.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case _:
                pass


def test_a_private_use_is_found() -> None:
    tree = ast.parse("consumer._engine.poll()\nself._engine.poll()\nsession._jvm\n")
    assert list(private_uses(tree)) == ["consumer._engine"]


def test_sentences_name_their_subject() -> None:
    """If this fails for your change, say it otherwise. Lower a limit when a folder has fewer."""
    counts = Counter[str]()
    for path in texts():
        counts[room_of(path)] += riddles(path.read_text(encoding="utf-8"))
    assert {name: n for name, n in counts.items() if n} == RIDDLES_MAX


def riddles(text: str) -> int:
    return len(RIDDLES.findall(text)) + sum(not there for there in IS_NO.findall(text))


def test_a_riddle_is_found() -> None:
    no = "is no"
    assert riddles(f"There {no} leader, so it {no} longer led.") == 0
    assert riddles(f"A str {no}\n    text. It starts by it" + "self.") == 2


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    """If this fails for your change, say it otherwise. Lower a limit when a folder has fewer."""
    counts = Counter[str]()
    for path in PYTHON_FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        counts[room_of(path)] += sum(bool(HEADLESS.match(each)) for each in docstrings(tree))
    assert {name: n for name, n in counts.items() if n} == HEADLESS_MAX


def docstrings(tree: ast.Module) -> Iterator[str]:
    """The first sentences of docstrings, also of those that follow an attribute."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text.split(". ")[0]
            case _:
                pass


def texts() -> Iterator[Path]:
    for folder in ("src", "docs", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".pyx", ".pxi", ".pxd", ".md", ".yaml", ".txt"}:
                yield path


def room_of(path: Path) -> str:
    """`src/moldau/broker`, `docs/adr`, `tests/core`; files above these are their parent's."""
    depth = 3 if path.is_relative_to(ROOT / "src") else 2
    return "/".join(path.relative_to(ROOT).parent.parts[:depth])


def test_the_limits_of_words_name_folders_that_are_there() -> None:
    assert [name for name in RIDDLES_MAX if not (ROOT / name).is_dir()] == []
