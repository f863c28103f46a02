"""Reads and writes tables of PostgreSQL. `core.connectors` composes the statements; here they are
executed.
"""
