"""Sources and targets of pipelines besides topics and plain files. A connector knows Spark and its
own system, but no pipeline.
"""
