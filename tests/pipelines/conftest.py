"""A broker, a Spark session and PostgreSQL, as in tests/support."""

from support.pipeline_fixtures import node, postgres, session

__all__ = ["node", "postgres", "session"]
