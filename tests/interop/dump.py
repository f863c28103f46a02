"""Apache's DumpLogSegments as a judge of files: its output, parsed into values and faults."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interop.apache import ApacheOracle

TOOL = "org.apache.kafka.tools.DumpLogSegments"
BATCH_LINE = re.compile(r"baseOffset: (?P<base>\d+) lastOffset: (?P<last>\d+) ")
FIELD = re.compile(r"(\w+): (\S+)")
# The tool compares the first record of every file with offset -1 and reports a gap there.
GAP = re.compile(r"  (-?\d+) is followed by (\d+)")
HARMLESS = re.compile(r"Non-consecutive offsets in |  -1 is followed by \d+$")


@dataclass(frozen=True, slots=True)
class Dumped:
    """A file's batches and records as printed by the tool: field names to printed values."""

    batches: list[dict[str, str]]
    records: list[dict[str, str]]
    lines: list[str]


def dump(apache: ApacheOracle, *files: Path, options: Sequence[str] = ()) -> Dumped:
    """Print files in depth; a refusal of the tool is an error here."""
    names = ",".join(map(str, files))
    run = apache.run_tool(TOOL, "--deep-iteration", *options, "--files", names)
    assert run.status == 0, run.errors
    lines = run.output.splitlines()
    batches = [dict(FIELD.findall(line)) for line in lines if BATCH_LINE.match(line)]
    records = [dict(FIELD.findall(line)) for line in lines if line.startswith("| offset: ")]
    return Dumped(batches, records, lines)


def faults(apache: ApacheOracle, folder: Path, *, gaps_allowed: bool = False) -> list[str]:
    """All faults that the tool finds in a partition's directory: content, indexes, snapshots."""
    content = sorted(
        path for path in folder.iterdir() if path.suffix in {".log", ".txnindex", ".snapshot"}
    )
    indexes = sorted(path for path in folder.iterdir() if path.suffix in {".index", ".timeindex"})
    assert any(path.suffix == ".log" for path in content), f"{folder} holds no segment"
    assert len(indexes) >= 2, f"{folder} holds no indexes"
    return [
        *content_faults(apache, content, gaps_allowed=gaps_allowed),
        *_index_faults(apache, indexes),
    ]


def content_faults(
    apache: ApacheOracle, files: list[Path], *, gaps_allowed: bool = False
) -> list[str]:
    """Faults in segments, transaction indexes and producer snapshots."""
    run = apache.run_tool(TOOL, "--deep-iteration", "--files", ",".join(map(str, files)))
    found = [] if run.status == 0 else [f"status {run.status}"]
    found += [
        line
        for line in run.output.splitlines()
        if "isvalid: false" in line or re.match(r"Found \d+ invalid bytes", line)
    ]
    for line in run.errors.splitlines():
        if HARMLESS.match(line) or (gaps_allowed and GAP.match(line)):
            continue
        found.append(line)
    return found


def _index_faults(apache: ApacheOracle, files: list[Path]) -> list[str]:
    names = ",".join(map(str, files))
    sanity = apache.run_tool(TOOL, "--index-sanity-check", "--files", names)
    verdicts = [f"{path} passed sanity check." for path in files]
    empty = [f"{path} is empty." for path in files]
    printed = set(sanity.output.splitlines())
    found = [
        f"no verdict on {path}"
        for path, verdict, none in zip(files, verdicts, empty, strict=True)
        if verdict not in printed and none not in printed
    ]
    verified = apache.run_tool(TOOL, "--verify-index-only", "--files", names)
    for run in (sanity, verified):
        found += run.errors.splitlines()
        found += [] if run.status == 0 else [f"status {run.status}"]
    return found
