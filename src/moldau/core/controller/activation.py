"""The records that a controller writes when it becomes active, before its first decision."""

from collections.abc import Sequence

from moldau.core.controller.decision_context import ELIGIBLE_LEADER_REPLICAS
from moldau.core.controller.topics.topic_settings import MIN_INSYNC_REPLICAS
from moldau.core.metadata.levels import TRANSACTIONS_FROM, level_after
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.log_records import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from moldau.protocol.wire.schema import Message


def first_records(bootstrap: Sequence[Message], min_insync_replicas: int) -> list[Message]:
    """The first records of an empty log: those of the format, in one transaction if the metadata
    version supports transactions, and the setting that eligible leaders need.
    """
    records = list(bootstrap)
    if any(
        isinstance(record, FeatureLevelRecord)
        and record.name == ELIGIBLE_LEADER_REPLICAS
        and record.feature_level > 0
        for record in bootstrap
    ):
        records.append(
            ConfigRecord(
                resource_type=ConfigResourceType.BROKER,
                resource_name="",
                name=MIN_INSYNC_REPLICAS,
                value=str(min_insync_replicas),
            )
        )
    if (level_after(bootstrap, None) or 0) < TRANSACTIONS_FROM:
        return records
    return [BeginTransactionRecord(name="Bootstrap records"), *records, EndTransactionRecord()]
