"""The public name of the HTTP data source, for `spark.dataSource.register`."""

from moldau.connectors.http.source import HttpSource

__all__ = ["HttpSource"]
