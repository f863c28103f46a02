"""Spark looks for data sources in modules with such names: pipelines that read PostgreSQL find it
in every session, with no `register()`.
"""

from moldau.connectors.postgres.source import PostgresSource as DefaultSource

__all__ = ["DefaultSource"]
