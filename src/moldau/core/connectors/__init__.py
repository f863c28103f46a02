"""Decisions of connectors: pages and cursors of HTTP responses, statements for PostgreSQL. Nothing
here does I/O.
"""
