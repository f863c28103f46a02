"""The record batch readers and builders of other clients."""

import warnings

from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.memory_records import MemoryRecords as AioRecords

with warnings.catch_warnings():
    # kafka-python reads its own resources in a deprecated way.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

__all__ = ["AioBuilder", "AioRecords", "KafkaPythonBatch", "KafkaPythonBuilder"]
