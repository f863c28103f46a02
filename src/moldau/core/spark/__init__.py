"""Decisions of the Spark source and sink: options, offset ranges, filters, progress, and whether a
micro-batch is already committed. Nothing here imports Spark.
"""
