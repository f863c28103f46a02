"""Settings as keyword arguments are known to editors and type checkers."""

import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import moldau
from moldau import aio
from moldau.client.arguments.admin import AdminArguments
from moldau.client.arguments.consumer import ConsumerArguments
from moldau.client.arguments.producer import ProducerArguments
from tools.generate_client_arguments import CLIENTS, FOLDER, render

ARGUMENTS = {
    "producer": ProducerArguments,
    "consumer": ConsumerArguments,
    "admin": AdminArguments,
}
RIGHT = """
import moldau
from moldau import aio

moldau.Producer("localhost", linger_ms=20, acks=1, compression_type="zstd", client_id=None)
moldau.Producer("localhost", value_serializer=lambda value: value.encode(), key_serializer="str")
moldau.Consumer("localhost", group_id="g", max_poll_records=5, security_protocol="SASL_SSL")
moldau.Consumer(["localhost"], partition_assignment_strategy=["range"], config={"client.id": "a"})
moldau.Admin("localhost", request_timeout_ms=5)
aio.Producer("localhost", transactional_id="t")
aio.Consumer("localhost", auto_offset_reset="earliest")
aio.Admin("localhost", sasl_mechanism="PLAIN")
"""
WRONG = """
import moldau
from moldau import aio

moldau.Producer("localhost", liger_ms=20)
moldau.Producer("localhost", linger_ms=[])
moldau.Producer("localhost", compression_type="zstandard")
moldau.Consumer("localhost", linger_ms=20)
moldau.Admin("localhost", group_id="g")
aio.Producer("localhost", liger_ms=20)
aio.Consumer("localhost", gruop_id="g")
aio.Admin("localhost", requst_timeout_ms=5)
"""


def found_by_mypy(folder: Path, cache: Path, programs: dict[str, str]) -> list[str]:
    for name, program in programs.items():
        (folder / name).write_text(program, encoding="utf-8")
    options = ["--strict", "--hide-error-context", f"--cache-dir={cache}"]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *programs],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode in {0, 1}, ran.stderr
    return [line for line in ran.stdout.splitlines() if "error:" in line]


def test_mypy_accepts_right_arguments_and_finds_wrong_ones(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """The package is checked, too, but not again at the next run."""
    assert pytestconfig.cache is not None
    cache = Path(pytestconfig.cache.mkdir("mypy"))
    found = found_by_mypy(tmp_path, cache, {"right.py": RIGHT, "wrong.py": WRONG})
    wrong_lines = range(5, 13)
    places = [line.partition(": error:")[0] for line in found]
    assert places == [f"wrong.py:{number}" for number in wrong_lines]
    assert 'Unexpected keyword argument "liger_ms"' in found[0]
    assert 'did you mean "linger_ms"' in found[0]


def test_the_checked_in_arguments_are_up_to_date() -> None:
    """If this fails: `make protocol`."""
    on_disk = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.py")}
    assert on_disk == render()


@pytest.mark.parametrize("name", CLIENTS)
def test_every_setting_is_an_argument(name: str) -> None:
    settings = {declared.attribute for declared in CLIENTS[name].declared.values()}
    assert set(get_type_hints(ARGUMENTS[name])) == settings - {"bootstrap_servers"}


@pytest.mark.parametrize("package", [moldau, aio], ids=lambda one: one.__name__)
@pytest.mark.parametrize("name", CLIENTS)
def test_annotations_can_be_read_at_run_time(package: object, name: str) -> None:
    made = getattr(package, name.capitalize())
    assert ARGUMENTS[name].__name__ in str(get_type_hints(made.__init__)["settings"])
