"""Spark finds data sources in modules with this prefix, so `spark.read.format("moldau")` works
wherever Moldau is installed, without a jar or `register()`.
"""

from moldau.spark.source.data_source import DefaultSource

__all__ = ["DefaultSource"]
