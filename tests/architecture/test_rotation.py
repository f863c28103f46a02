"""The parts in which CI runs the long suites."""

from support.rotation import chosen_files


def test_every_file_is_in_exactly_one_part() -> None:
    files = {f"tests/test_{number}.py" for number in range(10)}
    parts = [chosen_files(files, number, 3) for number in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == sorted(files)
    assert {len(part) for part in parts} == {3, 4}
