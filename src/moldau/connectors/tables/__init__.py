"""Targets that are tables in files: Parquet, Delta, Iceberg. A micro-batch appears in them once."""
