"""Spark looks for data sources in modules with such names: `spark.read.format("moldau")` works
wherever Moldau is installed, with no jar and no `register()`.
"""

from moldau.spark.source.data_source import DefaultSource

__all__ = ["DefaultSource"]
