"""The first records of an empty metadata log."""

import pytest

from moldau.core.controller.activation import first_records
from moldau.core.controller.decision_context import ELIGIBLE_LEADER_REPLICAS
from moldau.core.metadata.levels import TRANSACTIONS_FROM
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.log_records import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)


def bootstrap(metadata_version: int, **levels: int) -> list[FeatureLevelRecord]:
    named = {name.replace("_", "."): level for name, level in levels.items()}
    return [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in ({"metadata.version": metadata_version} | named).items()
    ]


def test_the_records_of_the_format_are_one_transaction() -> None:
    records = bootstrap(TRANSACTIONS_FROM, group_version=1)
    begin, *written, end = first_records(records, 1)
    assert isinstance(begin, BeginTransactionRecord)
    assert written == records
    assert isinstance(end, EndTransactionRecord)


def test_levels_without_transactions_get_the_records_alone() -> None:
    records = bootstrap(TRANSACTIONS_FROM - 1)
    assert first_records(records, 1) == records


@pytest.mark.parametrize("level", [0, 1])
def test_eligible_leaders_need_one_minimum_of_in_sync_replicas_for_all(level: int) -> None:
    records = bootstrap(TRANSACTIONS_FROM)
    records.append(FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS, feature_level=level))
    configs = [each for each in first_records(records, 2) if isinstance(each, ConfigRecord)]
    expected = ConfigRecord(
        resource_type=ConfigResourceType.BROKER,
        resource_name="",
        name="min.insync.replicas",
        value="2",
    )
    assert configs == [expected] * level
