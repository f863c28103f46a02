"""Prints coverage by line and branch for each top folder of the package, from coverage's report in
JSON: `tools/coverage_by_folder.py .coverage.json`. `--below 95` also lists the files under that per
cent of lines and branches together, with the lines that no test reaches.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple


class Counts(NamedTuple):
    lines: int = 0
    lines_covered: int = 0
    branches: int = 0
    branches_covered: int = 0

    @property
    def total_percent(self) -> float:
        return percent(self.lines_covered + self.branches_covered, self.lines + self.branches)


def percent(covered: int, total: int) -> float:
    return 100 * covered / total if total else 100.0


def counts_of(file: dict[str, Any]) -> Counts:
    summary = file["summary"]
    return Counts(
        summary["num_statements"],
        summary["covered_lines"],
        summary["num_branches"],
        summary["covered_branches"],
    )


def added(counts: Iterable[Counts]) -> Counts:
    return Counts(*(sum(column) for column in zip(*counts, strict=True)))


def top_folder(name: str) -> str:
    """`core` of src/moldau/core/quorum/machine.py; files of the package itself are `.`."""
    parts = Path(name).parts
    inside = parts[parts.index("moldau") + 1 :]
    return inside[0] if len(inside) > 1 else "."


def row(name: str, counts: Counts) -> str:
    lines = percent(counts.lines_covered, counts.lines)
    branches = percent(counts.branches_covered, counts.branches)
    return f"{name:12} {lines:6.1f} % {branches:8.1f} % {counts.total_percent:6.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("--below", type=float, help="list files under this per cent")
    arguments = parser.parse_args()
    files = json.loads(arguments.report.read_text(encoding="utf-8"))["files"]
    folders = defaultdict[str, list[Counts]](list)
    for name, file in sorted(files.items()):
        folders[top_folder(name)].append(counts_of(file))
        if arguments.below is not None and counts_of(file).total_percent < arguments.below:
            missing = [*file["missing_lines"], *(f"{a}->{b}" for a, b in file["missing_branches"])]
            print(f"{counts_of(file).total_percent:5.1f} %  {name}: {', '.join(map(str, missing))}")
    print(f"{'folder':12} {'lines':>8} {'branches':>10} {'total':>8}")
    for name, counts in folders.items():
        print(row(name, added(counts)))
    print(row("total", added(each for counts in folders.values() for each in counts)))


if __name__ == "__main__":
    main()
