"""DescribeLogDirs' response with two tagged fields of our own for damaged logs. Kafka's clients
skip unknown tags, and without damage the tags are absent.
"""

from typing import ClassVar

from moldau.protocol.messages import describe_log_dirs as kafkas
from moldau.protocol.wire.schema import Row

_TAG_DAMAGED_OFFSETS = 10_000
_TAG_IS_OFFLINE = 10_001


class DescribeLogDirsPartition(kafkas.DescribeLogDirsPartition):
    __slots__ = ("damaged_offsets", "is_offline")
    FIELDS: ClassVar[tuple[Row, ...]] = (  # type: ignore[assignment]
        *kafkas.DescribeLogDirsPartition.FIELDS,
        ("damaged_offsets", "[]int64", "2+", "none", _TAG_DAMAGED_OFFSETS, (), "i"),
        ("is_offline", "bool", "2+", "none", _TAG_IS_OFFLINE, False, "i"),
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        partition_size: int = 0,
        offset_lag: int = 0,
        is_future_key: bool = False,
    ) -> None:
        super().__init__(
            partition_index=partition_index,
            partition_size=partition_size,
            offset_lag=offset_lag,
            is_future_key=is_future_key,
        )
        self.damaged_offsets: list[int] = []
        """Pairs: the first offset of each damaged range, and the first offset after it."""
        self.is_offline = False
        """The whole partition is unusable."""


class DescribeLogDirsTopic(kafkas.DescribeLogDirsTopic):
    __slots__ = ()


class DescribeLogDirsResult(kafkas.DescribeLogDirsResult):
    __slots__ = ()


class DescribeLogDirsResponse(kafkas.DescribeLogDirsResponse):
    __slots__ = ()
