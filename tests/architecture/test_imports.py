"""Starting stays cheap: heavy libraries load only where they are used."""

import subprocess
import sys

import pytest

SERVER = (
    "import moldau.protocol.wire.codec, moldau.protocol.wire.frame, moldau.storage.directory.logs"
)
HEAVY = {"pyarrow", "numpy", "pandas", "typer", "click", "rich", "pyspark", "asyncio", "hypothesis"}
MEMORY_BUDGET_BYTES = 4 << 20
# A start costs what it imports: `python -X importtime` shows where, `benchmarks/startup.py`
# measures it. Times differ by machine; the number of our modules does not.
MODULE_BUDGETS = {
    "import moldau": 2,
    "import moldau.cli": 3,
    "from moldau.cli.app import app": 8,
    "import moldau; moldau.Producer": 125,
    "import moldau; moldau.Consumer": 145,
    SERVER: 110,
    "import moldau.broker.node.node": 394,
}


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("statement", ["import moldau", SERVER])
def test_heavy_libraries_are_not_loaded(statement: str) -> None:
    loaded = run_python(f"{statement}\nimport sys\nprint(*sys.modules)").split()
    assert HEAVY.isdisjoint(name.split(".")[0] for name in loaded)


@pytest.mark.parametrize("statement", MODULE_BUDGETS)
def test_a_start_imports_few_of_our_modules(statement: str) -> None:
    loaded = run_python(f"{statement}\nimport sys\nprint(*sys.modules)").split()
    ours = [name for name in loaded if name.split(".")[0] == "moldau"]
    assert len(ours) <= MODULE_BUDGETS[statement], ours


def test_message_modules_load_lazily() -> None:
    loaded = run_python(f"{SERVER}\nimport sys\nprint(*sys.modules)").split()
    messages = [name for name in loaded if name.startswith("moldau.protocol.messages.")]
    # The two headers belong to every frame; everything else waits for its first request.
    assert len(messages) <= 2, messages


def test_a_servers_own_modules_fit_their_memory_budget() -> None:
    """Counted by Python's allocator: what the system gives a process differs by machine."""
    code = f"""
import crc32c, cramjam, asyncio, struct, dataclasses, enum, typing, mmap, shutil, warnings
import gc, tracemalloc
tracemalloc.start()
{SERVER}
gc.collect()
print(tracemalloc.get_traced_memory()[0])
"""
    assert int(run_python(code)) < MEMORY_BUDGET_BYTES
