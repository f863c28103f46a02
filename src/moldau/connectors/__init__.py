"""What pipelines read and write besides topics and plain files. A connector knows Spark and its own
system, never a pipeline.
"""
