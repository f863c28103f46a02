"""Values on the command line are parsed, or refused with an example."""

import math
import random
from pathlib import Path

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.cli.bench.latencies import Latencies
from moldau.cli.records.line_source import read_lines
from moldau.cli.records.record_formats import of_tokens, unescaped
from moldau.cli.records.record_json import parse_record, record_line
from moldau.cli.shared.output import bytes_text, show_table
from moldau.cli.shared.parsing import (
    parse_duration_ms,
    parse_numbers,
    parse_settings,
    parse_size,
    parse_time_ms,
    parse_topic,
    time_text,
)
from moldau.cli.shared.server_properties import with_port
from moldau.protocol.records.record_loops import ConsumerRecord
from moldau.types import TopicPartition


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("2026-05-01T12:00:00", 1_777_636_800_000),
        ("2026-05-01T12:00:00Z", 1_777_636_800_000),
        ("2026-05-01T14:00:00.250+02:00", 1_777_636_800_250),
        ("2026-05-01", 1_777_593_600_000),
        ("1777636800000", 1_777_636_800_000),
        ("1950-01-01T00:00:00", 0),
    ],
)
def test_times(text: str, time_ms: int) -> None:
    assert parse_time_ms(text) == time_ms


def test_a_time_is_shown_as_it_is_read() -> None:
    assert time_text(1_777_636_800_250) == "2026-05-01T12:00:00.250Z"
    assert parse_time_ms(time_text(1_777_636_800_250)) == 1_777_636_800_250
    assert time_text(-1) == "-"
    assert time_text(2**62) == str(2**62)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("PT1H30M", 5_400_000),
        ("P1D", 86_400_000),
        ("P1DT0.5S", 86_400_500),
        ("pt10s", 10_000),
        ("90m", 5_400_000),
        ("1.5h", 5_400_000),
        ("250ms", 250),
        ("2w", 1_209_600_000),
    ],
)
def test_durations(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("64k", 65536), ("1MiB", 1 << 20), ("1.5kb", 1536)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_topics_partitions_and_settings() -> None:
    assert parse_topic("orders") == ("orders", None)
    assert parse_topic("orders:0,2-4,2") == ("orders", [0, 2, 3, 4])
    assert parse_settings(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}


@pytest.mark.parametrize(
    "refused",
    [
        lambda: parse_time_ms("noon"),
        lambda: parse_duration_ms("P"),
        lambda: parse_duration_ms("5 parsecs"),
        lambda: parse_size("big"),
        lambda: parse_topic(":1"),
        lambda: parse_topic("orders:"),
        lambda: parse_numbers("1,x"),
        lambda: parse_numbers("3-"),
        lambda: parse_settings(["=1"]),
        lambda: of_tokens("%q"),
    ],
)
def test_invalid_input_is_refused(refused: object) -> None:
    assert callable(refused)
    with pytest.raises(typer.BadParameter):
        refused()


def test_sizes_are_shown_for_people() -> None:
    assert [bytes_text(size) for size in (0, 1023, 1536, 5 << 20, 3 << 40)] == [
        "0 B", "1023 B", "1.5 KiB", "5.0 MiB", "3.0 TiB",
    ]  # fmt: skip


def test_columns_are_aligned_and_empty_ones_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_table(("name", "count", "note", "ids"), [("a", 5, "", [1, 2]), ("bcd", None, "", [])])
    assert capsys.readouterr().out == "NAME  COUNT  IDS\na         5  1,2\nbcd       -\n"
    show_table(("name", "new offset"), [])
    assert capsys.readouterr().out == "NAME  NEW-OFFSET\n"


def test_text_from_elsewhere_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("name",), [("a\x1b[2Jb",)])
    assert capsys.readouterr().out == "NAME\na\\x1b[2Jb\n"


BYTES = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple)


@settings(deadline=None)
@given(key=BYTES, value=BYTES, headers=HEADERS, timestamp=st.integers(0, 2**50))
def test_a_record_as_json_is_read_as_it_was(
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    timestamp: int,
) -> None:
    record = ConsumerRecord("t", 3, 7, timestamp, key, value, headers)
    line = record_line(TopicPartition("t", 3), record)
    assert "\n" not in line
    found = parse_record(line.encode())
    assert (found.key, found.value, found.headers) == (key, value, headers)
    assert (found.partition, found.timestamp) == (3, timestamp)


def test_formats_hold_bytes_and_escapes() -> None:
    record = ConsumerRecord("t", 3, 7, 1000, b"\xff", None, (("h", b"1"), ("n", None)))
    shown = of_tokens("%t-%p@%o %k|%s|%h|%K,%S%%\\t\\x41\\q")(TopicPartition("t", 3), record)
    assert shown == b"t-3@7 \xff||h=1,n=null|1,-1%\tA\\q"
    assert unescaped("a\\tb\\n%k") == b"a\tb\n%k"


async def test_lines_survive_any_cut(tmp_path: Path) -> None:
    chance = random.Random(7)
    lines = [bytes(chance.choices(range(32, 256), k=chance.randrange(3000))) for _ in range(1000)]
    path = tmp_path / "lines"
    path.write_bytes(b"\n".join(lines) + b"\n")
    chunks = [chunk async for chunk in read_lines([path])]
    assert [line for chunk in chunks for line in chunk.lines] == lines
    assert len(chunks) > 3
    assert sum(chunk.read_bytes for chunk in chunks) == path.stat().st_size


async def test_a_missing_file_is_an_error_of_the_reading() -> None:
    with pytest.raises(FileNotFoundError):
        async for _ in read_lines([Path("/no/such/file")]):
            pass


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 10_000), min_size=1))
def test_percentiles_are_at_most_a_percent_too_high(measured: list[float]) -> None:
    latencies = Latencies()
    for one in measured:
        latencies.add(one)
    ordered = sorted(measured)
    for percent in (50, 90, 99, 99.9):
        exact = ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]
        assert exact * 0.999 <= latencies.percentile_ms(percent) <= exact * 1.0101
    assert latencies.max_ms == ordered[-1]
    assert len(latencies) == len(measured)


def test_a_million_latencies_take_little_room() -> None:
    latencies = Latencies()
    chance = random.Random(7)
    for _ in range(20_000):
        latencies.add(chance.expovariate(0.1))
    assert latencies.bucket_count < 3000


def test_another_port_holds_for_the_first_listener_of_clients_and_where_it_is_advertised() -> None:
    before = {
        "listeners": "CONTROLLER://:9093, IN://[::1]:9092,OUT://:9094",
        "controller.listener.names": "CONTROLLER",
        "advertised.listeners": "OUT://broker.example:9094,IN://localhost:9092",
    }
    assert with_port(before, 7) == before | {
        "listeners": "CONTROLLER://:9093, IN://[::1]:7,OUT://:9094",
        "advertised.listeners": "OUT://broker.example:9094,IN://localhost:7",
    }
    assert with_port({}, 7) == {"listeners": "PLAINTEXT://:7"}
