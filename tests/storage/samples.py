"""The log directories that Apache Kafka 4.3.1 wrote, and the records that its clients read."""

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from moldau.types import Offset, TopicPartition, Uuid, parse_uuid

SAMPLES = Path(__file__).parents[1] / "data" / "samples"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
DIRECTORY_ID = parse_uuid("2_nZJKebT_GUfGcRIDwReQ")
NODE_ID = 1


class ExpectedRecord(NamedTuple):
    offset: Offset
    timestamp: int
    key: str | None
    # The first 16 hexadecimal digits of the value's SHA-256.
    value_digest: str | None
    value_bytes: int | None
    headers: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedPartition:
    log_start: Offset
    high_watermark: Offset
    last_stable: Offset
    records: tuple[ExpectedRecord, ...]
    # The offsets that read_committed sees, where they differ.
    committed_offsets: tuple[Offset, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTopic:
    topic_id: Uuid
    configs: dict[str, str]
    partitions: dict[int, ExpectedPartition]


def unpack(which: Literal["clean", "dirty"], target: Path) -> Path:
    """The log directory after a clean stop, or after SIGKILL."""
    with tarfile.open(SAMPLES / f"apache-4.3.1-{which}.tar.gz") as archive:
        # An attribute, not an argument: Python 3.11 knows the argument only since 3.11.4.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(target)
    return target


def expected_topics() -> dict[str, ExpectedTopic]:
    read = json.loads((SAMPLES / "expected.json").read_text())
    return {name: _topic(topic) for name, topic in read["topics"].items()}


def expected_partitions() -> dict[TopicPartition, ExpectedPartition]:
    return {
        TopicPartition(name, number): partition
        for name, topic in expected_topics().items()
        for number, partition in topic.partitions.items()
    }


def _topic(read: dict[str, Any]) -> ExpectedTopic:
    return ExpectedTopic(
        # The client that wrote the file used the other base64 alphabet.
        topic_id=parse_uuid(read["topic_id"].replace("+", "-").replace("/", "_")),
        configs=read["configs"],
        partitions={int(number): _partition(one) for number, one in read["partitions"].items()},
    )


def _partition(read: dict[str, Any]) -> ExpectedPartition:
    committed = read.get("read_committed_offsets")
    return ExpectedPartition(
        log_start=read["log_start"],
        high_watermark=read["high_watermark"],
        last_stable=read["last_stable"],
        records=tuple(
            ExpectedRecord._make((*fields, tuple((name, value) for name, value in headers)))
            for *fields, headers in read["read_uncommitted"]
        ),
        committed_offsets=None if committed is None else tuple(committed),
    )
