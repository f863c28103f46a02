"""The package as users install it: with and without a C compiler."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from support.missing import skip_except_in_ci

ROOT = Path(__file__).parents[2]

USE_IT = """
from moldau.protocol.records.batch_builder import build_batch
from moldau.protocol.records.batches import Record, RecordBatch
from moldau.compiled import USE_COMPILED
import moldau.protocol.wire.codec, moldau.storage.log.log

batch = RecordBatch(build_batch([Record(0, 1, b"k", b"v", ())]))
print(USE_COMPILED, batch.records()[0].value)
"""

TEST_WITH_IT = """
def test_it(moldau_broker):
    assert moldau_broker.bootstrap
"""


@pytest.fixture(scope="module")
def installed_without_compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source")
    target = tmp_path_factory.mktemp("site")
    ignored = shutil.ignore_patterns("*.so", "*.c", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
    ]
    broken = os.environ | {"CC": "/bin/false", "CXX": "/bin/false"}
    subprocess.run([*command, "--target", target, source], env=broken, check=True, timeout=300)
    return target


def run_python(
    code: str, site: Path | None = None, **extra: str
) -> subprocess.CompletedProcess[str]:
    # This suite may have selected the twins for its own process.
    environment = {k: v for k, v in os.environ.items() if k != "MOLDAU_PURE_PYTHON"}
    if site is not None:
        # With -P, this puts the fresh install before the editable one.
        environment["PYTHONPATH"] = str(site)
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=environment | extra,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )


def test_the_loops_are_compiled_where_there_is_a_compiler() -> None:
    """Otherwise all other tests would pass on the twins, whether the loops compile or not."""
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    if shutil.which("cc") is None or not headers.exists():
        skip_except_in_ci("no C compiler with Python's headers: all tests run on the twins")
    finished = run_python(USE_IT)
    assert finished.stdout.split() == ["True", "b'v'"], finished.stderr


def test_without_a_compiler_the_package_runs_on_the_twins_and_warns_once(
    installed_without_compiler: Path,
) -> None:
    assert not list(installed_without_compiler.rglob("*.so"))
    finished = run_python(USE_IT, installed_without_compiler)
    assert finished.stdout.split() == ["False", "b'v'"]
    assert finished.stderr.count("without its compiled loops") == 1


def test_requesting_the_twins_gives_no_warning(installed_without_compiler: Path) -> None:
    finished = run_python(USE_IT, installed_without_compiler, MOLDAU_PURE_PYTHON="1")
    assert finished.stdout.split() == ["False", "b'v'"]
    assert finished.stderr == ""


def test_a_suite_that_forbids_warnings_runs_without_the_compiled_loops(
    installed_without_compiler: Path, tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_with_it.py").write_text(TEST_WITH_IT)
    code = f"import pytest, sys; sys.exit(pytest.main(['-q', {str(tmp_path)!r}]))"
    finished = run_python(code, installed_without_compiler)
    assert "1 passed" in finished.stdout
    assert "compiled loops" not in finished.stdout + finished.stderr


def test_the_package_is_typed(installed_without_compiler: Path) -> None:
    assert (installed_without_compiler / "moldau" / "py.typed").exists()


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_an_environment_without_pip_is_recreated(tmp_path: Path) -> None:
    """Debian leaves such an environment if python3-venv is not installed."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements").mkdir()
    for name in ("pyproject.toml", "setup.py", "requirements/dev.txt"):
        (tmp_path / name).touch()
    without_pip = tmp_path / ".venv" / "bin" / "python"
    without_pip.parent.mkdir(parents=True)
    without_pip.write_text("#!/bin/sh\nexit 1\n")
    maker = tmp_path / "maker"
    # Like the module venv: pip exists when it is done.
    maker.write_text('#!/bin/sh\necho "$@" > made\nprintf "#!/bin/sh\\n" > .venv/bin/python\n')
    for script in (without_pip, maker):
        script.chmod(0o755)
    command = ["make", "--silent", "setup", f"PYTHON={maker}"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "made").read_text() == "-m venv .venv\n"
    # An intact environment is not recreated.
    (tmp_path / "made").unlink()
    (tmp_path / ".venv" / ".installed").unlink()
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    assert not (tmp_path / "made").exists()
