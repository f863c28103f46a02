"""Wrong uses of `moldau pipeline` are errors of one line, before anything runs."""

from pathlib import Path

import pytest
from cli.command import moldau, moldau_here


@pytest.mark.parametrize(
    ("command", "name"),
    [("check", "a.py"), ("test", "a.yaml"), ("run", "a.yaml"), ("replay", "a.py")],
)
def test_a_missing_extra_is_an_error_of_one_line(tmp_path: Path, command: str, name: str) -> None:
    """As on a machine that has only `pip install moldau`."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nfor name in ('pyspark', 'pandas'):\n    sys.modules[name] = None\n"
    )
    moldau_here("pipeline", "init", tmp_path / name)
    ran = moldau("pipeline", command, tmp_path / name, PYTHONPATH=str(tmp_path))
    assert (ran.status, ran.output) == (1, "")
    assert ran.errors == ("moldau: pipelines need pyspark, pandas: pip install 'moldau[spark]'\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--from", "yesterday"), "'yesterday' is not a time; write 2026-11-01 or"),
        (
            ("--from", "2026-11-02", "--to", "2026-11-01"),
            "--to 2026-11-01 is not later than --from 2026-11-02",
        ),
        (("--into", ""), "--into is empty: the replay would write to the pipeline's own targets"),
    ],
)
def test_an_invalid_replay_is_an_error_of_one_line(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    moldau_here("pipeline", "init", tmp_path / "a.yaml")
    ran = moldau_here("pipeline", "replay", tmp_path / "a.yaml", *options)
    assert (ran.status, ran.output) == (1, "")
    assert ran.errors.startswith(f"moldau: {said}")
    assert ran.errors.count("\n") == 1


def test_a_checkpoint_that_cannot_be_deleted_is_an_error(tmp_path: Path) -> None:
    """Provoked by a file in place of the folder."""
    moldau_here("pipeline", "init", tmp_path / "a.yaml")
    state = tmp_path / ".moldau" / "a"
    state.parent.mkdir()
    state.write_text("no folder")
    ran = moldau_here("pipeline", "reset", tmp_path / "a.yaml", "--yes")
    assert (ran.status, ran.output) == (1, "")
    assert str(state) in ran.errors
    assert state.exists()
