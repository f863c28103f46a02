"""Spark looks for data sources in modules with such names: pipelines that read PostgreSQL find it
in every session, with no `register()`.
"""

from moldau.pipelines.postgres_source import PostgresSource as DefaultSource

__all__ = ["DefaultSource"]
