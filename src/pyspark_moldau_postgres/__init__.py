"""Spark finds data sources in modules with this prefix, so pipelines that read PostgreSQL need no
`register()`.
"""

from moldau.connectors.postgres.source import PostgresSource as DefaultSource

__all__ = ["DefaultSource"]
