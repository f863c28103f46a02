"""The data source `moldau`, from which Spark gets readers and writers. Spark loads it in several
processes before the first row is read, and most of them need only the columns: modules that talk to
brokers are imported by readers and writers.
"""

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from moldau.core.spark.errors import OptionError
from moldau.core.spark.options import (
    SinkOptions,
    check_names,
    sink_options,
    source_options,
)
from moldau.spark.source.schema import check_rows, chosen_columns, source_schema


class DefaultSource(DataSource):
    """`spark.read.format("moldau")`: its options and columns are those of Spark's own `kafka`."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        # An error raised here points to the user's line.
        check_names(self.options)

    @classmethod
    def name(cls) -> str:
        return "moldau"

    def schema(self) -> StructType:
        has_headers = self.options.get("includeHeaders", "false").strip().lower() == "true"
        return source_schema(has_headers=has_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from moldau.spark.runtime.connection import consumer_config
        from moldau.spark.source.batch_reader import BatchReader, FilteringBatchReader

        options = source_options(self.options, is_stream=False)
        consumer_config(options.settings)
        kind = FilteringBatchReader if options.pushes_filters else BatchReader
        return kind(options, chosen_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from moldau.spark.runtime.connection import consumer_config
        from moldau.spark.source.stream_reader import StreamReader

        options = source_options(self.options, is_stream=True)
        consumer_config(options.settings)
        return StreamReader(options, chosen_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from moldau.spark.sink.writer import BatchWriter

        if overwrite:
            raise OptionError('a topic cannot be overwritten; write with mode("append")')
        return BatchWriter(self._sink(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, ARG002
        from moldau.spark.sink.writer import StreamWriter

        # In complete mode Spark passes overwrite; the topic then gets all groups again.
        return StreamWriter(self._sink(schema))

    def _sink(self, schema: StructType) -> SinkOptions:
        from moldau.spark.sink.writer import checked_producer_config

        options = sink_options(self.options)
        checked_producer_config(options.settings)
        check_rows(schema, options.topic)
        return options
